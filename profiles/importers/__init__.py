"""Read the profiles that others published, and make profiles of ours of them.

Each format has a file with a function that reads what is there: drafts. What a source lacks has to
be given, by an option, and what is derived is said in the profile's note; nothing is made up.
Not here: writing the result (profiles.writer).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from profiles.errors import ProfileError
from profiles.importers import clockwork_yaml, disb, nexus, parvagpu, perf_analyzer, reef, timm
from profiles.importers.draft import Draft, Given, completed
from profiles.schema import Profile

FORMATS: Final[dict[str, Callable[[Path, Given], list[Draft]]]] = {
    "nexus": nexus.read,
    "parvagpu": parvagpu.read,
    "timm": timm.read,
    "clockwork-yaml": clockwork_yaml.read,
    "perf-analyzer": perf_analyzer.read,
    "disb": disb.read,
    "reef": reef.read,
}

_SIGNS: Final = {
    "nexus": nexus.is_one,
    "parvagpu": parvagpu.is_one,
    "timm": timm.is_one,
    "clockwork-yaml": clockwork_yaml.is_one,
    "perf-analyzer": perf_analyzer.is_one,
    "disb": disb.is_one,
    "reef": reef.is_one,
}

__all__ = ["FORMATS", "Draft", "Given", "import_profiles"]


def import_profiles(path: Path, format_: str = "auto", given: Given | None = None) -> list[Profile]:
    """The profiles of a file.

    format_: one of FORMATS, or "auto" to tell it by the file's first lines.
    Raises ProfileError if the file cannot be read, or something that is needed is not given.
    """
    given = given or Given()
    if format_ == "auto":
        format_ = _format_of(path)
    elif format_ not in FORMATS:
        raise ProfileError(f"--format {format_}; expected auto or one of {', '.join(FORMATS)}")
    return completed(path, FORMATS[format_](path, given), given)


def _format_of(path: Path) -> str:
    found = [name for name, is_one in _SIGNS.items() if is_one(path)]
    if len(found) != 1:
        raise ProfileError(
            f"{path.name} looks like no profile that is known; "
            f"expected one of {', '.join(FORMATS)} (--format)"
        )
    return found[0]

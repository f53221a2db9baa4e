"""Find profiles by name: in the stores that come with the package, or in a file of one's own.

    clockwork_v100/resnet50_v2     one model of a store
    clockwork_v100/*               all of them (any fnmatch pattern)
    my_profiles.toml/resnet50      one model of a file
    my_profiles.toml               all of them

Not here: reading the files (profiles.reader).
"""

from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from profiles.errors import ProfileError
from profiles.reader import read
from profiles.schema import Profile

DATA = Path(__file__).parent / "data"


def find(pattern: str, base: Path | None = None) -> list[Profile]:
    """The profiles that `pattern` names, in the order of their file; at least one.

    base: the folder that a relative path to a file starts from; the working directory by default.
    Raises ProfileError, with close matches, if there is no such store, file or model.
    """
    place, model = _split(pattern)
    if place.endswith(".toml"):
        profiles = read((base or Path()) / place)
    elif place in stores():
        profiles = _shipped(place)
    else:
        raise ProfileError(
            f"no profile store {place}{_close(place, stores())}; "
            f"expected one of {', '.join(stores())}, or a path to a .toml file"
        )
    exact = [profile for profile in profiles if profile.name == model]
    found = exact or [profile for profile in profiles if fnmatchcase(profile.name, model)]
    if not found:
        names = [profile.name for profile in profiles]
        raise ProfileError(
            f"no model {model} in {place}{_close(model, names)}; {place}/* names all {len(names)}"
        )
    return list(found)


def stores() -> list[str]:
    """Names of the stores that come with the package, in alphabetical order."""
    return sorted(path.stem for path in DATA.glob("*.toml"))


@cache
def _shipped(store: str) -> list[Profile]:
    return read(DATA / f"{store}.toml")


def _split(pattern: str) -> tuple[str, str]:
    """Store or file, and the pattern for its models."""
    file, dot_toml, model = pattern.partition(".toml")
    if dot_toml:
        return file + dot_toml, model.removeprefix("/") or "*"
    place, _, model = pattern.partition("/")
    return place, model or "*"


def _close(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names)
    return f" (did you mean {' or '.join(close)}?)" if close else ""

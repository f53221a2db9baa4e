"""Write profiles as the TOML that profiles.reader reads."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from profiles.durations import Constant, Durations, Quantiles
from profiles.errors import ProfileError
from profiles.reader import SCHEMA
from profiles.schema import Profile


def write(path: Path, profiles: Sequence[Profile]) -> None:
    """Write profiles to a file; reading it gives the same ones.

    Raises ProfileError if two have one name, their licences differ, or it cannot be written.
    """
    twice = [name for name, n in Counter(profile.name for profile in profiles).items() if n > 1]
    if twice:
        raise ProfileError(f"two models are called {twice[0]}; a file holds one of each name")
    licences = {profile.licence for profile in profiles}
    if len(licences) != 1:
        raise ProfileError(f"licences differ: {', '.join(sorted(licences))}; a file has one")
    first = profiles[0]
    content = {
        "schema": SCHEMA,
        "device": first.device,
        "source": first.source,
        "licence": first.licence,
        "models": {profile.name: _table(profile, first) for profile in profiles},
    }
    try:
        path.write_bytes(tomli_w.dumps(content).encode())
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}; expected a file to write to") from None


def _table(profile: Profile, first: Profile) -> dict[str, Any]:
    table: dict[str, Any] = {
        "weights_bytes": profile.weights_bytes,
        "input_bytes": profile.input_bytes,
        "output_bytes": profile.output_bytes,
        "load_ms": _value(profile.load),
        "exec_ms": {str(batch): _value(durations) for batch, durations in profile.exec.items()},
    }
    if profile.device != first.device:
        table["device"] = profile.device
    if profile.source != first.source:
        table["source"] = profile.source
    if profile.note:
        table["note"] = profile.note
    return table


def _value(durations: Durations) -> Any:
    if isinstance(durations, Constant):
        return durations.ns / 1e6
    if isinstance(durations, Quantiles):
        points = zip(durations.shares, durations.ns, strict=True)
        return {"quantiles": {str(share): ns / 1e6 for share, ns in points}}
    return {"samples": [ns / 1e6 for ns in durations.ns]}

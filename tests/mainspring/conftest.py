"""A small scenario that runs in a moment, and ways to change it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]

SMALL = """\
name = "small"
seed = 1
duration_s = 2.0
warmup_s = 0.5
slo_ms = 100.0

[cluster]
gpus = 1
pages = 64

[[models]]
profile = "clockwork_v100/resnet50_v2"
copies = 3

[[workload]]
kind = "poisson"
rate_rps = 200

[policy.clockwork]
[policy.fifo]
"""


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than the small scenario."""
    monkeypatch.setattr(sys.modules["mainspring.run"], "_draw", lambda *_: None)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the small scenario, with some of its text replaced, and work in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(*changes: tuple[str, str]) -> Path:
        text = SMALL
        for old, new in changes:
            assert old in text, f"{old!r} is not in the small scenario"
            text = text.replace(old, new)
        Path("small.toml").write_text(text)
        return Path("small.toml")

    return write

import pytest

from executor import open_files
from executor.server import room_for

resource = pytest.importorskip("resource", reason="only POSIX limits open files so")


@pytest.mark.parametrize(
    ("soft", "hard", "room", "then"),
    [(1_024, -1, 2_000, 2_452), (1_024, 4_096, 2_000, 2_452), (1_024, 1_024, 572, 1_024),
     (256, 1_024, 572, 1_024), (-1, -1, 2_000, -1), (50_000, 50_000, 2_000, 50_000),
     (256, 256, -196, 256)],
)  # fmt: skip
def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed(
    soft: int, hard: int, room: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 connections need 452 more: 256 being taken, 64 refused, 4 workers, 128 other files."""
    limits = [(soft, hard)]
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(open_files.resource, "setrlimit", lambda which, new: limits.append(new))
    assert room_for(2_000, 4) == room
    assert limits[-1] == (then, hard)


def test_where_the_system_refuses_the_soft_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, new: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(open_files.resource, "getrlimit", lambda which: (256, -1))
    monkeypatch.setattr(open_files.resource, "setrlimit", refuse)
    assert open_files.allow(2_000) == 256

"""Measurements that are not part of the repository, where they are at hand."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def shared():
    """A function from a name to its path; skips the test if there is no such file."""

    def path_of(name):
        if not (SHARED / name).exists():
            pytest.skip(f"this test needs {name} in a folder ../shared beside the repository")
        return SHARED / name

    return path_of

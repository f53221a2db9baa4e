"""Our packages have short names; say so where another package of one is found instead."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = ("scheduler", "sim", "executor", "profiles", "workloads", "results")


def shadowed(home: Path = Path(__file__).parents[1]) -> Iterator[str]:
    """A line about each package that lies beside mainspring but is imported from elsewhere."""
    for name in NAMES:
        ours = home / name / "__init__.py"
        if not ours.is_file():
            continue
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin) if spec and spec.origin else None
        if found is not None and found.resolve() != ours.resolve():
            yield (
                f"mainspring: warning: {name} is imported from {found.parent}, which is another "
                "package of that name; give mainspring an environment of its own"
            )


def warn_if_shadowed() -> None:
    """Print those lines, before an import fails for that reason."""
    for line in shadowed():
        print(line, file=sys.stderr)

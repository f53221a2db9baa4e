"""What `import mainspring` must not drag in: it takes long, and few need it at once."""

import subprocess
import sys


def test_slow_packages_are_imported_late():
    code = (
        "import sys, mainspring, mainspring.cli; print(*{m.partition('.')[0] for m in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    slow = {"scipy", "matplotlib", "pandas", "distributed", "torch", "zmq", "perfetto"}
    assert slow.isdisjoint(loaded)

"""Which requests will be answered in time, under this scheduler, on this cluster?

from mainspring import load_scenario, run

runs = run(load_scenario("scenarios/demo.toml"))
"""

from mainspring.names import warn_if_shadowed

warn_if_shadowed()  # first, since the imports below would fail without a word of why

from mainspring.compare import Comparison, compare  # noqa: E402
from mainspring.journal import Replayed, replay  # noqa: E402
from mainspring.live import LiveRun, run_live  # noqa: E402
from mainspring.plan import Plan, plan  # noqa: E402
from mainspring.run import run  # noqa: E402
from mainspring.runs import Run, Runs, load_runs  # noqa: E402
from mainspring.scenario import Scenario, build_scenario, load_scenario  # noqa: E402
from mainspring.sweep import Sweep, load_sweep, sweep  # noqa: E402
from mainspring.validate import Validation, validate  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "LiveRun",
    "Plan",
    "Replayed",
    "Run",
    "Runs",
    "Scenario",
    "Sweep",
    "Validation",
    "__version__",
    "build_scenario",
    "compare",
    "load_runs",
    "load_scenario",
    "load_sweep",
    "plan",
    "replay",
    "run",
    "run_live",
    "sweep",
    "validate",
]

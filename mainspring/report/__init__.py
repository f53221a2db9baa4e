"""Pages for people who did not run it: one HTML file each, with everything in it.

    mainspring report runs/monday --html monday.html

A page opens with the question and its answer in a sentence; then comes what that rests on: numbers
and figures, when requests were missed and whose, what was assumed, and how to run it again.

    runs.py      a page on runs side by side      cases.py   what is known of each run
    parts.py     its windows, clients and models  basis.py   what it assumes, how to run it again
    validation.py   a page on live beside simulated
    studies.py   pages on a sweep or a plan       page.py    what any page is made of, and its look

Not here: how a run is taken apart (results.breakdown) and drawn (results.plots).
"""

from collections.abc import Sequence
from pathlib import Path

from mainspring.document import ScenarioError
from mainspring.plan import is_study
from mainspring.report.page import write_page
from mainspring.report.runs import runs_page
from mainspring.report.studies import study_page
from mainspring.runs import load_runs

__all__ = ["report"]


def report(directories: Sequence[str | Path], path: str | Path) -> Path:
    """Write a page on finished runs, or on one sweep or plan. Returns its path.

    Raises ResultsError or ScenarioError, and writes nothing, where a directory is none of these,
    or the page cannot be written.
    """
    places = [Path(directory) for directory in directories]
    studies = [place for place in places if is_study(place)]
    if studies and len(places) > 1:
        raise ScenarioError(f"{studies[0]} is a sweep or a plan; expected it alone, or runs")
    page = study_page(studies[0]) if studies else runs_page(load_runs(*places))
    return write_page(page, path)

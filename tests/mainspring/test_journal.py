"""Journals on disk: recorded by a run, replayed by name."""

from pathlib import Path
from typing import Any

import pytest

from mainspring import build_scenario, run
from mainspring.document import ScenarioError
from mainspring.journal import NAME, JournalWriter, read, replay
from scheduler.journal import Record, Step

SCENARIO = {
    "name": "small",
    "duration_s": 1.0,
    "slo_ms": 50.0,
    "cluster": {"gpus": 2, "pages": 20},
    "models": [{"profile": "clockwork_docs/resnet50_v2", "copies": 8}],
    "workload": [{"kind": "poisson", "rate_rps": 400}],
    "policy": {"clockwork": {"buffer_ms": 4.0}},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    run(build_scenario(SCENARIO), out, journal=True)
    return out


def test_a_run_replays_from_its_directory(directory: Path) -> None:
    came = replay(directory)
    assert came.same
    assert came.whole
    assert came.policy == "clockwork"
    assert came.steps > 400


def test_a_journal_changes_nothing_about_the_run(directory: Path, tmp_path: Path) -> None:
    (with_journal,) = run(build_scenario(SCENARIO), tmp_path / "a", journal=True)
    (without,) = run(build_scenario(SCENARIO), tmp_path / "b")
    assert with_journal.summary.digest == without.summary.digest


def test_a_torn_journal_replays_as_far_as_it_goes(directory: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.msgpack"
    torn.write_bytes((directory / NAME).read_bytes()[:-1000])
    came = replay(torn)
    assert came.same
    assert not came.whole


def test_one_nanosecond_in_one_action_is_noticed(directory: Path, tmp_path: Path) -> None:
    records = list(read(directory))
    changed = next(at for at, record in enumerate(records) if at > 300 and _sent(record))
    _sent(records[changed])[0][1].latest_ns += 1
    with JournalWriter(tmp_path) as journal:
        for record in records:
            journal.write(record)
    came = replay(tmp_path)
    assert came.difference is not None
    assert came.difference[0] == changed  # steps count from 1, and the header is record 0


def _sent(record: Record) -> Any:
    return record.emitted[0] if isinstance(record, Step) else []


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_bytes(b"\0\0\0\5hello and more")
    with pytest.raises(ScenarioError, match="not a journal of this version"):
        replay(file)
    with pytest.raises(ScenarioError, match="expected a journal, as `mainspring run --journal`"):
        replay(tmp_path / "missing")

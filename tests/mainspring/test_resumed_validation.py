"""A validation that was stopped goes on: what is whole is kept, byte by byte, and not run again."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mainspring.cli import main
from mainspring.live import TIMINGS

pytest.importorskip("zmq", reason="live runs need pip install 'mainspring[executor]'")

SCENARIO = Path(__file__).parents[2] / "scenarios" / "live.toml"
SMALL = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "models.0.copies=2"]
OWN = [str(SCENARIO), *SMALL, "--set", "workload.0.rate_rps=50", "--loads", "own", "--repeats", "2"]


def validate(*options: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as end:
        main(["validate", *options])
    assert isinstance(end.value.code, int)
    return end.value.code


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stopped_validation_goes_on_and_says_so(
    number: signal.Signals, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "v"
    process = subprocess.Popen(
        [sys.executable, "-c", "from mainspring.cli import main; main()", "validate", *OWN,
         "--out", str(out)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not (out / "live-2" / "actions.parquet.part").exists():
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == code
    if number == signal.SIGINT:
        assert "interrupted: the same command goes on where this one stopped" in said
    assert not (out / "live-2" / TIMINGS).exists()
    whole = contents(out / "calibration") | contents(out / "live-1")
    assert out / "live-1" / TIMINGS in whole

    assert validate(*OWN, "--out", str(out)) in (0, 4, 5)
    assert contents(out / "calibration") | contents(out / "live-1") == whole
    assert not json.loads((out / "live-2" / "summary.json").read_text())["interrupted"]
    came = json.loads((out / "validate.json").read_text())
    assert [part["first"] for part in came["parts"]] == ["calibration", "live-2"]
    assert f"from live-2 on: {came['parts'][1]['at']}" in capsys.readouterr().out
    page = (out / "validate.html").read_text()
    assert "the live runs were taken at different times" in page


def test_the_report_comes_of_what_was_kept_and_of_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "v"
    options = [str(SCENARIO), *SMALL, "--loads", "0.1", "--repeats", "2", "--out", str(out)]
    code = validate(*options)
    printed = capsys.readouterr()
    assert "different times" not in printed.out
    assert not printed.err
    whole = contents(out)

    for gone in ("validate.json", "validate.html", "clockwork/0.1/delays.toml"):
        (out / gone).unlink()
    shutil.rmtree(out / "clockwork" / "0.1" / "simulated-2")
    half = out / "clockwork" / "0.1" / "simulated-1"  # as one that was killed
    (half / "summary.json").unlink()
    assert validate(*options) == code
    again = contents(out)
    assert set(again) == set(whole)
    changed = {path.name for path in whole if again[path] != whole[path]}
    assert changed <= {"run.json"}  # when the two simulations began
    assert capsys.readouterr().out == printed.out

    assert validate(*options) == code
    assert "was finished, so nothing was run; choose another --out" in capsys.readouterr().err
    assert contents(out) == again


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--repeats", "3"], "repeats was 2 and is 3"),
        (["--loads", "0.5,0.9"], "loads was own and is 0.5,0.9"),
        (["--policy", "edf"], "policies was clockwork and is edf"),
        (["--set", "slo_ms=50"], "slo_ms was 100.0 and is 50.0"),
        (["--set", "models.0.copies=3"], "models.0.copies was 2 and is 3"),
        (["--no-measure"], "measured was True and is False"),
    ],
)
def test_another_question_is_refused(
    options: list[str], difference: str, asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(asked)
    assert validate(*OWN, "--out", str(asked), *options) == 2
    assert capsys.readouterr().err == (
        f"mainspring: {asked} is of another question: {difference}; "
        "choose another --out, or remove it\n"
    )
    assert contents(asked) == before


@pytest.mark.parametrize(
    ("key", "difference"),
    [
        ("mainspring", "mainspring was 0.0.0 and is "),
        ("code", "the code of mainspring is not what it was"),
        ("machine", "machine was 0.0.0 and is "),
    ],
)
def test_another_version_or_machine_is_refused(
    key: str, difference: str, asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((asked / "question.json").read_text())
    record["question"][key] = "0.0.0"
    (asked / "question.json").write_text(json.dumps(record))
    assert validate(*OWN, "--out", str(asked)) == 2
    assert difference in capsys.readouterr().err


def test_another_profile_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import profiles

    file, out = tmp_path / "mine.toml", tmp_path / "v"
    text = (Path(profiles.__file__).parent / "data" / "clockwork_docs.toml").read_text()
    file.write_text(text)
    options = [*OWN, "--set", f"models.0.profile={file}/resnet50_v2", "--out", str(out)]
    _ask(options)
    file.write_text(text + "# measured again\n")
    assert validate(*options) == 2
    assert f"is of another question: {file} is not what it was" in capsys.readouterr().err


def test_a_directory_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert validate(*OWN, "--out", str(tmp_path)) == 2
    assert f"{tmp_path} is not empty; choose another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_that_was_exchanged_is_refused(
    asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = asked / "calibration"
    other.mkdir()
    (other / TIMINGS).write_text("{}")
    (other / "scenario.toml").write_text("seed = 7")
    assert validate(*OWN, "--out", str(asked)) == 2
    assert f"{other} is a run of something else (see its scenario.toml)" in capsys.readouterr().err


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """The directory of OWN, stopped before its first run."""
    out = tmp_path / "v"
    _ask([*OWN, "--out", str(out)])
    return out


def _ask(options: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["mainspring.validate"], "measure_delays", _stop)
        assert validate(*options) == 130


def _stop(*given: object) -> None:
    raise KeyboardInterrupt

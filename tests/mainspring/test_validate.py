import json
from pathlib import Path

import pytest

from mainspring.cli import main

pytest.importorskip("zmq", reason="live runs need pip install 'mainspring[executor]'")
pytestmark = pytest.mark.usefixtures("without_pictures")
SCENARIO = Path(__file__).parents[2] / "scenarios" / "live.toml"


def test_validate_ends_with_the_code_of_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "workload.0.rate_rps=50"]
    with pytest.raises(SystemExit) as end:
        main(["validate", str(SCENARIO), "--repeats", "1", "--json", *settings,
              "--out", str(tmp_path / "v")])  # fmt: skip
    came = json.loads(capsys.readouterr().out)
    codes = {"trust": 0, "trust with care": 4, "do not trust": 5}
    assert end.value.code == codes[came["verdict"]] == came["exit_code"]
    exact = [check for check in came["checks"] if check["name"] in ("same arrivals", "replay")]
    assert [check["grade"] for check in exact] == ["good", "good"]

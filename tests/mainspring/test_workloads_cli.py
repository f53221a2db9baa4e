"""`mainspring workloads show`: its counts are those of the file, or of the run."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mainspring import load_scenario
from mainspring.cli import main
from mainspring.world import Purpose, generator

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Call the command line in an empty folder; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        with pytest.raises(SystemExit) as exited:
            main(list(map(str, args)))
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def shared():
    def path_of(name):
        if not (SHARED / name).exists():
            pytest.skip(f"this test needs {name} in a folder ../shared beside the repository")
        return SHARED / name

    return path_of


def requests(out):
    return [int(n.replace(",", "")) for n in re.findall(r"  requests ([\d,]+),", out)]


def tenths(out):
    """The column `requests` of the table."""
    rows = re.findall(r"^ +[\d,.e+]+ +[\d,.e+]+ +([\d,]+) +[\d,.e+-]+ #*$", out, re.MULTILINE)
    return [int(n.replace(",", "")) for n in rows]


KINDS = """\
kind = "constant"
rate_rps = 100
[[workload]]
kind = "gamma"
rate_rps = 100
cv = 2.5
weights = [3, 2, 1]
[[workload]]
kind = "mmpp"
rate_rps = 100
levels = [1, 10]
mean_s = [1, 0.1]
[[workload]]
kind = "bursts"
rate_rps = 100
every_s = 1
burst_s = 0.1
burst_share = 0.5
[[workload]]
kind = "ramp"
from_rps = 0
to_rps = 200
ramp_s = 2
[[workload]]
kind = "periodic"
rate_rps = 100
period_s = 2
amplitude = 0.5
[[workload]]
kind = "steps"
steps = [[0, 10], [1, 200]]
[[workload]]
kind = "trace"
path = "trace.csv"
time_column = "t"
time_unit = "ms"
model_column = "m"
rename = { r = "resnet50_v2.0" }
slice_s = [0, 1]
repeat = 2
[[workload]]
kind = "closed"
concurrency = 2"""


def test_a_scenario_shows_the_arrivals_of_its_run(call, write):
    path = write(('kind = "poisson"\nrate_rps = 200', KINDS))
    Path("trace.csv").write_text("t,m\n0,r\n10,resnet50_v2.1\n")
    code, out, err = call("workloads", "show", path)
    assert (code, err) == (0, "")
    assert "picture:  small-rate.png\n" in out
    assert Path("small-rate.png").read_bytes().startswith(b"\x89PNG")
    scenario = load_scenario(path)
    names = [model.name for model in scenario.models]
    expected = []
    for i, workload in enumerate(scenario.spec.workload[:-1]):
        rng = generator(scenario.spec.seed, Purpose.ARRIVALS, i)
        chunks = workload.chunks(workload.select(names), names, 2 * 10**9, rng)
        expected.append(sum(len(chunk.times_ns) for chunk in chunks))
    assert requests(out) == expected
    assert sum(tenths(out)) == sum(expected)
    assert expected[0] == 200
    assert expected[-1] == 4
    assert "6 clients that think for 0 ms, at least 0.1 ms where there is no answer: " in out


def test_a_scenario_with_every_kind_is_recorded_so_that_it_can_be_run_again(call, write, tmp_path):
    path = write(('kind = "poisson"\nrate_rps = 200', KINDS))
    Path("trace.csv").write_text("t,m\n0,r\n")
    scenario = load_scenario(path)
    Path("again").mkdir()
    Path("again/scenario.toml").write_text(scenario.to_toml(scenario.policies))
    assert load_scenario(Path("again")).spec.workload == scenario.spec.workload


def test_a_scenario_can_be_changed_on_the_command_line(call, write):
    path = write(("poisson", "constant"))
    code, out, _ = call("workloads", "show", path, "--set", "workload.0.rate_rps=50")
    assert (code, requests(out)) == (0, [100])


def test_bug_wrk_14_the_idle_head_of_a_trace_shows(call):
    """0.05/s for an hour, then 5/s for an hour; 2 % of the requests have no output token."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    times = [20 * i for i in range(180)] + [3600 + i / 5 for i in range(18_000)]
    for i, t in enumerate(times):
        stamp = f"2023-11-16 {int(t) // 3600:02}:{int(t) // 60 % 60:02}:{t % 60:09.6f}"
        lines.append(f"{stamp},10,{0 if i % 50 == 0 else 5}")
    Path("llm.csv").write_text("\n".join(lines))
    code, out, err = call("workloads", "show", "llm.csv", "--duration-s", 7200)
    assert (code, requests(out)) == (0, [18_180])
    assert tenths(out) == [36] * 5 + [3600] * 5
    assert "llm.csv: 364 of 18180 requests without an output token, kept" in err


def test_bug_cli_11_a_shape_file_shows_its_counts(call):
    Path("shape.csv").write_text("start_s,rate_rps\n0,10\n10,200\n11,10\n20,0\n")
    arguments = ("workloads", "show", "shape.csv", "--set", "gaps=even")
    assert call(*arguments) == (
        2,
        "",
        "mainspring: shape.csv: the last step has no end; give --duration-s\n",
    )
    code, out, _ = call(*arguments, "--duration-s", 20)
    assert (code, requests(out)) == (0, [390])
    assert tenths(out) == [20, 20, 20, 20, 20, 210, 20, 20, 20, 20]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz", 2_013_353),
        ("traces/azure_functions_2019_sampled/sampled1350_fullday_invocations.csv.gz", 996_503),
        ("traces/azure_functions_2021/Azure2021_200.csv", 199),
        ("traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz", 19_366),
        ("traces/mooncake_fast25/conversation_trace.jsonl.gz", 12_031),
        ("traces/servegen/m-small_client_rates.csv.gz", 1_420_558_786),
        ("traces/servegen/deepseek-r1_client_rates.csv.gz", 1_383_669),
        ("traces/servegen/mm-image_client_rates.csv.gz", 818_610),
        ("traces/reef_fig10/E.json.gz", 6_240),
        ("profiles/disb/workloads/REAL.json", 1_684),
    ],
)
def test_every_published_trace_shows_the_count_of_its_readme(call, shared, name, count):
    code, out, err = call("workloads", "show", shared(f"data/{name}"), "--out", "rate.svg")
    assert (code, err) == (0, "")
    assert requests(out) == [count]
    assert abs(sum(tenths(out)) - count) <= 10  # each tenth is rounded
    assert Path("rate.svg").exists()


def test_any_table_with_a_time_can_be_shown(call):
    pa.parquet.write_table(pa.table({"t": [0, 500, 1000], "m": ["x", "y", "x"]}), "t.parquet")
    settings = [f"--set={key}" for key in ("kind=trace", "time_column=t", "time_unit=ms")]
    code, out, _ = call("workloads", "show", "t.parquet", *settings, "--set=model_column=m")
    assert (code, requests(out)) == (0, [3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t.csv"], "t.csv is none of the known traces; say how to read it, as --set kind=trace "
         "--set time_column=t --set time_unit=ms"),
        (["t.csv", "--set", "kind"], "--set kind: expected key=value, as in seed=2"),
        (["t.csv", "--set", "kind=trac"], "--set kind=trac: kind = \"trac\"; did you mean trace?"),
        (["t.csv", "--set", "kind=trace"], "t.csv: missing key time_column"),
        (["t.csv", "--set", "kind=trace", "--set", "time_column=t"], "t.csv: time_unit is "
         "missing, and t.csv cannot tell it; expected one of \"ns\", \"us\", \"ms\", \"s\", or "
         "\"stamp\" for dates"),
        (["gone.csv"], "gone.csv: No such file or directory; expected a CSV file"),
        (["notes.md"], "notes.md is none of the known traces; say how to read it, as --set "
         "kind=trace --set time_column=t --set time_unit=ms"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(call, arguments, message):
    Path("t.csv").write_text("t,m\n0,a\n")
    Path("notes.md").write_text("# Notes\n")
    assert call("workloads", "show", *arguments) == (2, "", f"mainspring: {message}\n")


def test_a_picture_has_to_be_a_picture(call):
    Path("shape.csv").write_text("start_s,rate_rps\n0,10\n")
    code, _, err = call("workloads", "show", "shape.csv", "--duration-s", 1, "--out", "rate.txt")
    assert (code, err) == (
        2, "mainspring: --out rate.txt; expected a name that ends in .png or .svg\n",
    )  # fmt: skip


CLIENTS = """\
name = "clients"
duration_s = 10.0
drain_s = 1.0

[cluster]
gpus = 1
pages = 8

[[models]]
profile = "slow.toml/slow"

[[workload]]
kind = "closed"
concurrency = 4

[policy.fifo]
"""

SLOW = """\
schema = 1
device = "X"
source = "a test"
licence = "none"
[models.slow]
weights_bytes = 1
input_bytes = 1
output_bytes = 1
load_ms = 0.001
exec_ms = { 1 = 100 }
"""


def test_bug_cli_06_four_clients_of_one_server_wait_four_times_as_long(call):
    """4 clients, no think time, 100 ms on one server: 10 a second, each after 400 ms."""
    Path("slow.toml").write_text(SLOW)
    Path("clients.toml").write_text(CLIENTS)
    code, _, err = call("run", "clients.toml", "--out", "out", "--quiet")
    assert (code, err) == (0, "")
    table = pa.parquet.read_table("out/outcomes.parquet").to_pydict()
    arrived, ended = np.array(table["arrival_ns"]), np.array(table["end_ns"])
    assert int((ended <= 10 * 10**9 + 10**7).sum()) == 100
    assert (ended - arrived)[10:90] / 1e6 == pytest.approx(400, abs=1)
    under_way = [int(((arrived <= t) & (t < ended)).sum()) for t in range(0, 10**10, 10**8)]
    assert max(under_way) == 4

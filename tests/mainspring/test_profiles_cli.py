"""`mainspring profiles`: list, show, import and check."""

from pathlib import Path

import pytest

from mainspring.cli import main
from profiles import Constant, find

NEXUS = """\
caffe:vgg16:1
TITAN_X_(Pascal)
Forward latency
batch,latency(us),std(us),memory(B)
1,6000,20,949944320
2,14000,20,1061093376
4,13000,20,1061093376
Preprocess latency
"""

GIVEN = ("--weights-mb", 553, "--pcie-gb-s", 12.27, "--input-kb", 602, "--output-kb", 4)


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Call the command line in an empty folder; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        with pytest.raises(SystemExit) as exited:
            main(["profiles", *map(str, args)])
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return call


def test_stores_are_listed_with_their_devices(call):
    code, out, err = call("list")
    assert (code, err) == (0, "")
    assert "clockwork_v100           64  NVIDIA V100\n" in out
    assert call("list", "--device", "none")[1].count("\n") == 2


def test_models_are_listed_and_shown(call):
    code, out, _ = call("list", "clockwork_docs")
    assert code == 0
    assert "resnet50_v2      102.2      8.31  1,2,4,8,16         2.73 to 17.33\n" in out
    code, out, _ = call("show", "clockwork_docs/resnet50_v2")
    assert code == 0
    for line in (
        "  device   NVIDIA V100",
        "  licence  measurements published in the documentation, typed in as figures",
        "  bytes    102,160,300 weights, 602,112 input, 4,000 output",
        "       16      17.33      17.33      17.33     923.25",
    ):
        assert f"{line}\n" in out


def test_what_others_measured_is_imported_with_origin_and_licence(call):
    Path("vgg.txt").write_text(NEXUS)
    code, out, err = call("import", "vgg.txt", "--out", "my.toml", "--licence", "BSD", *GIVEN)
    assert code == 0
    assert out.startswith("profiles: my.toml: 1 of TITAN X (Pascal); BSD\n")
    assert err == (
        "mainspring: warning: caffe:vgg16:1 on TITAN X (Pascal): batch 4 (13 ms) is faster than "
        "batch 2 (14 ms); used as measured\n"
    )
    with pytest.warns(match="is faster"):
        (profile,) = find("my.toml/*")
    assert profile.exec[1] == Constant(6_000_000)
    assert profile.source.startswith("Nexus' profiles, github uwsampl/nexus")
    assert profile.licence == "BSD"
    assert call("import", "vgg.txt", "--out", "my.toml", "--licence", "BSD", *GIVEN)[2] == (
        "mainspring: --out my.toml is there already; choose another name, or remove it\n"
    )


def test_a_dent_is_pooled_and_a_hole_filled_on_demand(call):
    Path("vgg.txt").write_text(NEXUS)
    extra = ("--licence", "BSD", "--pool", "--batches", "1,2,3,4", "--interpolate", "linear")
    code, _, _ = call("import", "vgg.txt", "--out", "my.toml", *GIVEN, *extra)
    assert code == 0
    (profile,) = find("my.toml/*")
    assert {batch: d.mean_ns() / 1e6 for batch, d in profile.exec.items()} == {
        1: 6, 2: 13.5, 3: 13.5, 4: 13.5,
    }  # fmt: skip
    assert "interpolated in straight lines" in profile.note


def test_a_check_names_what_is_odd(call):
    Path("vgg.txt").write_text(NEXUS.replace("2,14000,20,1061093376\n", "3,14000,20,1\n"))
    call("import", "vgg.txt", "--out", "my.toml", "--licence", "BSD", *GIVEN)
    code, out, err = call("check", "my.toml", "clockwork_docs/resnet50_v2", "--slo-ms", 10)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "resnet50_v2 was measured on NVIDIA V100, and most of the others on TITAN X (Pascal); "
        "expected one device",
        "caffe:vgg16:1 on TITAN X (Pascal): batch 4 (13 ms) is faster than batch 3 (14 ms)",
        "caffe:vgg16:1: no measurement at batch 2; a policy that rounds batches to powers of two "
        "cannot use them",
        "caffe:vgg16:1: infeasible under Nexus' rule: its fastest batch (1) needs 2 x 6 ms, and "
        "the SLO is 10 ms",
        "2 profiles, 4 remarks",
    ]


def test_bug_prf_05_an_slo_that_no_batch_can_meet_is_told_with_exit_code_1(call, write):
    code, out, _ = call("check", "clockwork_docs/resnet50_v2", "--slo-ms", 2)
    assert code == 1
    assert out.startswith(
        "resnet50_v2: infeasible: its fastest batch (1) needs 2.73 ms, and the SLO is 2 ms\n"
    )
    code, out, _ = call("check", write(("slo_ms = 100.0", "slo_ms = 1.0")))
    assert (code, out.count("infeasible")) == (1, 1)


def test_bug_prf_06_a_device_that_was_not_measured_is_an_error(call):
    for command in ("list", "show", "check"):
        assert call(command, "clockwork_v100/resnet50_v2", "--device", "Z") == (
            2, "", "mainspring: no profile for Z; have NVIDIA V100\n",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "clockwork_v10"], "no profile store clockwork_v10 (did you mean "
         "clockwork_v100 or clockwork_docs?); expected one of clockwork_docs, clockwork_v100, or "
         "a path to a .toml file"),
        (["import", "gone.txt", "--out", "x.toml"], "gone.txt: No such file or directory; "
         "expected a profile to import"),
        (["import", "vgg.txt", "--out", "x.json"], "--out x.json; expected a name that ends in "
         ".toml"),
        (["import", "vgg.txt", "--out", "x.toml", "--batches", "1,x"], "--batches 1,x; expected "
         "whole numbers, such as 1,2,4,8"),
        (["import", "vgg.txt", "--out", "x.toml", "--format", "nexu"], "--format nexu; expected "
         "auto or one of nexus, parvagpu, timm, clockwork-yaml, perf-analyzer, disb, reef"),
        (["import", "vgg.txt", "--out", "x.toml", "--licence", "BSD"], "vgg.txt: caffe:vgg16:1: "
         "the file does not tell the size of its weights; give --weights-mb"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(call, arguments, message):
    Path("vgg.txt").write_text(NEXUS)
    assert call(*arguments) == (2, "", f"mainspring: {message}\n")
    assert not Path("x.toml").exists()

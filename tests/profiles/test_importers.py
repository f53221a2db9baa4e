"""Profiles that others published: what is read, what has to be given, and what is refused."""

import warnings

import pytest

from profiles import Constant, ProfileError, ProfileWarning, Quantiles, find, read
from profiles.importers import FORMATS, Given, import_profiles
from profiles.importers.clockwork_yaml import parse
from profiles.writer import write

ALL = {"weights_mb": 100.0, "load_ms": 8.0, "input_kb": 602.0, "output_kb": 4.0, "licence": "test"}

NEXUS = """\
caffe:vgg16:1
TITAN_X_(Pascal)
Forward latency
batch,latency(us),std(us),memory(B)
1,6277.4,22.3517,949944320
2,14499,20.6559,1061093376
Preprocess latency
mean(us),std(us)
1,1
"""

PARVAGPU = """\
Mig instance,Batch size,Workload Number,Throughput,Latency
1,1,1,74.4,0.013
7,1,1,100,0.01
7,2,1,140,0.014
7,4,1,0,0
7,1,2,50,0.02
"""

TIMM = """\
model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count
resnet50,224,1000,1024.0,1024.0,25.56
resnet50,288,700,1462.9,1024,25.56
vit,224,,,,300
"""

YAML = """\
# a comment
graphs:
  - name: Inference
    graph:
      - name: Task_One
        work_profile: ResNet50
profiles:
  # resnet50_v2 in Clockwork
  - name: ResNet50
    loading_strategies:
      - batch_size: 1
        runtime: 8372 # In us.
        resource_requirements:
          RAM:any: 102 # 102.3 MB
    execution_strategies:
      - batch_size: 1
        runtime: 3322
        resource_requirements:
          GPU:any: 1
      - batch_size: 2
        runtime: 5271
"""

PERF = """\
Concurrency,Inferences/Second,Server Compute Input,Server Compute Infer,Server Compute Output
4,84.2,233,11731,18
1,69.2,206,11781,19
"""

DISB = """\
{"results": [{"clientName": "vgg19_rt",
  "analyzers": [{"standAloneTotalLatency(us)": 2847, "type": "basic"}, {"type": "accuarcy"}]}]}
"""

SAMPLES = {
    "nexus": ("vgg.txt", NEXUS),
    "parvagpu": ("bert.csv", PARVAGPU),
    "timm": ("benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv", TIMM),
    "clockwork-yaml": ("resnet.yaml", YAML),
    "perf-analyzer": ("inception.csv", PERF),
    "disb": ("trt.A.json", DISB),
    "reef": ("vgg.profile.json", '{"model_latency":1188,"kernel_latency":{}}'),
}


@pytest.fixture
def bring(tmp_path):
    """Write a source and import it."""

    def bring(name, text, format_="auto", **given):
        (tmp_path / name).write_text(text)
        return import_profiles(tmp_path / name, format_, Given(**given))

    return bring


def error_of(call, *args, **kwargs):
    with pytest.raises(ProfileError) as error:
        call(*args, **kwargs)
    return str(error.value)


def ms(profile):
    return {batch: durations.mean_ns() / 1e6 for batch, durations in profile.exec.items()}


@pytest.mark.filterwarnings("ignore::profiles.errors.ProfileWarning")
@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_is_told_by_its_content_and_survives_being_written(bring, tmp_path, format_):
    name, text = SAMPLES[format_]
    device = None if format_ in ("nexus", "timm") else "X"
    profiles = bring(name, text, device=device, batch=1, **ALL)
    assert profiles == bring(name, text, format_, device=device, batch=1, **ALL)
    write(tmp_path / "mine.toml", profiles)
    assert read(tmp_path / "mine.toml") == profiles
    assert find(f"{tmp_path}/mine.toml/{profiles[0].name}") == profiles[:1]


def test_nexus_gives_means_or_quantiles_of_a_normal(bring):
    (profile,) = bring("vgg.txt", NEXUS, **ALL)
    assert (profile.name, profile.device) == ("caffe:vgg16:1", "TITAN X (Pascal)")
    assert profile.exec == {1: Constant(6_277_400), 2: Constant(14_499_000)}
    (profile,) = bring("vgg.txt", NEXUS, spread="normal", **ALL)
    assert isinstance(profile.exec[1], Quantiles)
    assert profile.exec[1].estimate_ns(0.5) == 6_277_400
    # The 99th percentile of a normal distribution is 2.3263 deviations above its mean.
    assert profile.exec[1].estimate_ns(0.99) == pytest.approx(6_277_400 + 2.3263 * 22_351.7, abs=5)
    assert "normal distribution" in profile.note


def test_parvagpu_gives_one_setting_and_leaves_out_what_did_not_run(bring):
    (profile,) = bring("bert.csv", PARVAGPU, device="A100", **ALL)
    assert (profile.name, ms(profile)) == ("bert", {1: 10, 2: 14})
    assert "batch 4 did not run" in profile.note
    (shared,) = bring("bert.csv", PARVAGPU, device="A100", processes=2, **ALL)
    assert ms(shared) == {1: 20}
    assert error_of(bring, "bert.csv", PARVAGPU, device="A100", mig=3, **ALL) == (
        "bert.csv has no --mig 3 with --processes 1; has 1 with 1, 7 with 1, 7 with 2"
    )


def test_timm_tells_device_precision_and_sizes(bring):
    name, text = SAMPLES["timm"]
    with pytest.warns(ProfileWarning, match="1 models did not run and are left out: vit$"):
        profiles = bring(name, text, pcie_gb_s=12.27, output_kb=4.0, licence="test")
    assert [profile.name for profile in profiles] == ["resnet50@224", "resnet50@288"]
    first = profiles[0]
    assert first.device == "NVIDIA RTX 4090"
    assert first.exec == {1024: Constant(1_024_000_000)}
    assert first.weights_bytes == 25_560_000 * 4
    assert first.load == Constant(round(25_560_000 * 4 / 12.27))
    assert first.input_bytes == 3 * 224 * 224 * 4
    assert first.note == (
        "amp, nchw, pt240 cu124; weights_bytes is 25.56 million parameters of 4 bytes; "
        "input_bytes is 3 x 224 x 224 numbers of 4 bytes; load_ms is weights_bytes at 12.27 GB/s; "
        "output_bytes was given to the importer"
    )


def test_clockworks_yaml_has_the_load_time_too(bring):
    (profile,) = bring(
        "resnet.yaml", YAML, device="V100", input_kb=602.0, output_kb=4.0, licence="test"
    )
    assert profile.load == Constant(8_372_000)
    assert profile.weights_bytes == 102_000_000
    assert ms(profile) == {1: 3.322, 2: 5.271}


def test_perf_analyzer_gives_the_servers_own_time_at_the_lowest_concurrency(bring):
    (profile,) = bring("inception.csv", PERF, device="X", batch=1, **ALL)
    assert ms(profile) == {1: pytest.approx((206 + 11781 + 19) / 1e3)}


def test_disb_gives_the_latency_of_each_client_alone(bring):
    (profile,) = bring("trt.A.json", DISB, device="RTX 3080", batch=1, **ALL)
    assert (profile.name, ms(profile)) == ("vgg19_rt", {1: 2.847})


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("weights_mb", "vgg.txt: caffe:vgg16:1: the file does not tell the size of its weights; "
         "give --weights-mb"),
        ("load_ms", "vgg.txt: caffe:vgg16:1: the file does not tell how long it loads; give "
         "--load-ms, or --pcie-gb-s (such as 12.27, the V100 of the Clockwork paper) to compute "
         "it from its weights"),
        ("input_kb", "vgg.txt: caffe:vgg16:1: the file does not tell the size of a request's "
         "input; give --input-kb"),
        ("output_kb", "vgg.txt: caffe:vgg16:1: the file does not tell the size of a request's "
         "output; give --output-kb"),
        ("licence", "vgg.txt: on what terms may it be passed on? There is no LICENSE beside it; "
         "give --licence"),
    ],
)  # fmt: skip
def test_what_a_source_lacks_is_asked_for_and_not_invented(bring, left_out, message):
    given = {key: value for key, value in ALL.items() if key != left_out}
    assert error_of(bring, "vgg.txt", NEXUS, **given) == message


@pytest.mark.parametrize("format_", ["parvagpu", "clockwork-yaml", "perf-analyzer", "disb", "reef"])
def test_the_device_is_asked_for_where_the_file_does_not_tell(bring, format_):
    name, text = SAMPLES[format_]
    assert error_of(bring, name, text, batch=1, **ALL).endswith(
        "the file does not tell the device; give --device"
    )


def test_a_load_time_from_a_speed_is_computed_from_the_weights_and_noted(bring):
    given = {**ALL, "load_ms": None, "pcie_gb_s": 12.27}
    (profile,) = bring("vgg.txt", NEXUS, **given)
    assert profile.load == Constant(round(100e6 / 12.27))
    assert "load_ms is weights_bytes at 12.27 GB/s" in profile.note


def test_the_licence_beside_a_file_is_recognised(bring, tmp_path):
    (tmp_path / "LICENSE").write_text("MIT License\n\nCopyright (c) 2024 Someone\n")
    given = {key: value for key, value in ALL.items() if key != "licence"}
    (profile,) = bring("vgg.txt", NEXUS, **given)
    assert profile.licence == "MIT (LICENSE beside the source), Copyright (c) 2024 Someone"
    assert profile.source.startswith("Nexus' profiles, github uwsampl/nexus")


def test_batches_are_chosen_or_interpolated_on_demand(bring):
    (profile,) = bring("vgg.txt", NEXUS, batches=(1,), **ALL)
    assert profile.batch_sizes == (1,)
    assert error_of(bring, "vgg.txt", NEXUS, batches=(1, 4), **ALL) == (
        "vgg.txt: caffe:vgg16:1: no measurement at batch 4 (have 1, 2); "
        "leave it out of --batches, or add --interpolate linear"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.txt", "", "x.txt looks like no profile that is known; expected one of nexus, "
         "parvagpu, timm, clockwork-yaml, perf-analyzer, disb, reef (--format)"),
        ("v.txt", NEXUS.replace("14499", "nan"), "v.txt, line 6: nan is not a duration; expected "
         "a number above 0"),
        ("v.txt", NEXUS.replace("14499", "-1"), "v.txt, line 6: -1 is not a duration; expected a "
         "number above 0"),
        ("v.txt", NEXUS.replace("2,14499", "0,14499"), "v.txt, line 6: 0 is not a batch size; "
         "expected a whole number above 0"),
        ("v.txt", NEXUS.replace("2,14499", "1,14499"), "v.txt, line 6: batch 1 is there twice; "
         "remove one of the lines"),
        ("v.txt", NEXUS.replace(",20.6559", ""), "v.txt, line 6: 3 of 4 cells; expected one for "
         "each column"),
        ("v.txt", NEXUS[:NEXUS.index("Preprocess")], "v.txt ends after line 6; expected "
         "Preprocess latency below the batches: is the file whole?"),
        ("b.csv", PARVAGPU + "7,1,1,1,0.1\n", "b.csv, line 7: batch 1 is there twice; remove one "
         "of the lines"),
        ("b.csv", PARVAGPU + "7,8,1,1,x\n", "b.csv, line 7: x is not a duration; expected a "
         "number above 0"),
        ("p.csv", PERF + "2,1,1,x,1\n1,1,1,y,1\n", None),
        ("d.json", DISB[:-3], "d.json: not JSON"),
        ("y.yaml", YAML.replace("runtime: 3322", "runtime 3322"), "y.yaml, line 17: runtime "
         "3322; expected key: value"),
        ("y.yaml", YAML.replace("runtime: 3322", "runtime: fast"), "y.yaml: ResNet50, batch 1: "
         "fast is not a duration; expected a number above 0"),
        ("y.yaml", YAML.replace("RAM:any: 102", "RAM:any: lots"), "y.yaml: ResNet50: RAM:any is "
         "lots; expected MB"),
        ("y.yaml", YAML.replace("loading_strategies", "loading"), "y.yaml: ResNet50: "
         "'loading_strategies' is missing; is the file whole?"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_in_one_line(bring, name, text, message):
    if message is None:  # only the row of the lowest concurrency is used
        assert len(bring(name, text, device="X", batch=1, **ALL)) == 1
        return
    found = error_of(bring, name, text, device=None if name == "v.txt" else "X", batch=1, **ALL)
    assert found.startswith(message)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights_mb": -1.0}, "--weights-mb -1.0; expected a number above 0"),
        ({"pcie_gb_s": float("nan")}, "--pcie-gb-s nan; expected a number above 0"),
        ({"input_kb": -1.0}, "--input-kb -1.0; expected a number at least 0"),
        ({"batch": 0}, "--batch 0; expected a size of at least 1"),
        ({"batches": (1, 0)}, "--batches 0; expected sizes of at least 1"),
        ({"interpolate": "log"}, "--interpolate log; expected linear"),
        ({"spread": "gamma"}, "--spread gamma; expected mean or normal"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, message):
    assert error_of(Given, **given) == message


def test_yaml_is_read_as_far_as_such_files_need_it():
    assert parse("x", "a: 1\nb:\n- c: x # note\n  d:\n    e:f: 2\n- g: h\n") == {
        "a": "1",
        "b": [{"c": "x", "d": {"e:f": "2"}}, {"g": "h"}],
    }


# -- the published files themselves ----------------------------------------------------------------


def imported(path, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProfileWarning)
        return import_profiles(path, given=Given(**given))


SIZES = {"weights_mb": 100.0, "pcie_gb_s": 12.27, "input_kb": 602.0, "output_kb": 4.0}


@pytest.mark.parametrize(
    ("name", "lines"),
    [("caffe_vgg16_1", 184), ("caffe_vgg_s_1", 522), ("darknet_yolo9000_1", 34)],
)
def test_nexus_files(shared, name, lines):
    """Lines as the README counts them: 4 above the batches and 6 below."""
    path = shared(f"data/profiles/nexus/titan_x_pascal__{name}.txt")
    (profile,) = imported(path, **SIZES)
    assert profile.batch_sizes == tuple(range(1, lines - 10 + 1))
    assert "BSD-3-Clause style" in profile.licence
    if name == "caffe_vgg16_1":
        assert (ms(profile)[4], ms(profile)[5]) == (20.5512, 20.4613)
        assert "batch 5 (20.4613 ms) is faster than batch 4 (20.5512 ms)" in profile.not_monotone()


def test_parvagpus_ten_files(shared):
    paths = sorted(shared("data/profiles/parvagpu").glob("[a-z]*.csv"))
    assert len(paths) == 10
    for path in paths:
        assert len(path.read_text().splitlines()) == 226
        (profile,) = imported(path, device="NVIDIA A100 80GB", **SIZES)
        sizes = tuple(2**i for i in range(9))
        assert profile.batch_sizes in (sizes, sizes[:-1])
        assert profile.licence.startswith("MIT")


def test_timms_nineteen_files(shared):
    """929 to 1,629 rows; two rows of one file did not run."""
    paths = sorted(shared("data/profiles/timm").glob("*.csv.gz"))
    assert len(paths) == 19
    counts = [len(imported(path, pcie_gb_s=12.27, output_kb=4.0)) for path in paths]
    assert (min(counts), max(counts)) == (929, 1629)
    assert counts[1] == 1293 - 2


def test_clockworks_file(shared):
    path = shared("data/profiles/clockwork/clockwork_resnet50_microbenchmark.yaml")
    (profile,) = imported(path, device="NVIDIA V100", input_kb=602.0, output_kb=4.0)
    assert profile.load == Constant(8_372_000)
    assert ms(profile) == {1: 3.322, 2: 5.271, 4: 7.495, 8: 12.439, 16: 21.729}
    assert profile.licence.startswith("MIT")


def test_perf_analyzers_file(shared):
    path = shared("data/profiles/triton_perf_analyzer/inception_graphdef_concurrency.csv")
    (profile,) = imported(path, device="unknown", batch=1, **SIZES)
    assert ms(profile) == {1: pytest.approx(12.006)}


def test_disbs_twelve_results(shared):
    paths = sorted(shared("data/profiles/disb/results").glob("*.json"))
    assert len(paths) == 12
    clients = {"A": 2, "B": 2, "C": 6, "D": 10}
    for path in paths:
        profiles = imported(path, device="NVIDIA RTX 3080", batch=1, **SIZES)
        assert len(profiles) == clients[path.name.split(".")[1]]
        assert all(profile.licence.startswith("Apache-2.0") for profile in profiles)


def test_reefs_nine_models(shared):
    """Latencies of the README, in microseconds."""
    expected = {
        "alexnet": 8851, "bert": 5426, "densenet": 3743, "inception": 8273, "mobilenet": 1188,
        "resnet": 10958, "resnet152": 13233, "resnet18": 2189, "vgg": 4824,
    }  # fmt: skip
    found = {}
    for path in sorted(shared("data/profiles/reef_mi50").glob("*.json")):
        (profile,) = imported(path, device="AMD Radeon Instinct MI50", **SIZES)
        found[profile.name] = profile.exec[1].mean_ns() / 1e3
    assert found == expected

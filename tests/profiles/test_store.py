"""Finding profiles, and the figures that come with the package."""

import csv

import pytest

from profiles import Constant, ProfileError, find, stores

PAGE_BYTES = 16 * 2**20

MINE = """
schema = 1
device = "X"
source = "a test"
licence = "none"
[models.small]
weights_bytes = 1
input_bytes = 1
output_bytes = 1
load_ms = 1
exec_ms = { 1 = 1 }
[models.large]
weights_bytes = 9
input_bytes = 1
output_bytes = 1
load_ms = 1
exec_ms = { 1 = 1 }
"""


def names(profiles):
    return [profile.name for profile in profiles]


def test_the_package_brings_its_stores():
    assert stores() == ["clockwork_docs", "clockwork_v100"]


def test_a_name_finds_one_profile_and_a_pattern_several():
    assert names(find("clockwork_v100/resnet50_v2")) == ["resnet50_v2"]
    assert names(find("clockwork_v100/winograd_*")) == [
        "winograd_resnet18_v2",
        "winograd_resnet50_v2",
        "winograd_resnet101_v2",
        "winograd_resnet152_v2",
    ]
    assert len(find("clockwork_v100/*")) == len(find("clockwork_v100")) == 64


def test_a_file_of_ones_own_is_found_from_the_scenario_that_names_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.toml").write_text(MINE)
    assert names(find("sub/mine.toml/large", base=tmp_path)) == ["large"]
    assert names(find("sub/mine.toml", base=tmp_path)) == ["small", "large"]
    assert names(find(f"{tmp_path}/sub/mine.toml/s*")) == ["small"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "clockwork_v10/resnet50_v2",
            "no profile store clockwork_v10 (did you mean clockwork_v100 or clockwork_docs?); "
            "expected one of clockwork_docs, clockwork_v100, or a path to a .toml file",
        ),
        (
            "clockwork_v100/xceptoin",
            "no model xceptoin in clockwork_v100 (did you mean xception or inceptionv3?); "
            "clockwork_v100/* names all 64",
        ),
        ("clockwork_docs/b*", "no model b* in clockwork_docs; clockwork_docs/* names all 2"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(pattern, message):
    with pytest.raises(ProfileError) as error:
        find(pattern)
    assert str(error.value) == message


def test_the_v100_store_equals_the_papers_table_cell_by_cell(shared):
    with shared("data/clockwork_v100/models.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    profiles = find("clockwork_v100/*")
    assert names(profiles) == [row["model"] for row in table]
    for row, profile in zip(table, profiles, strict=True):
        assert profile.input_bytes == pytest.approx(float(row["input_kb"]) * 1000, abs=0.1)
        assert profile.output_bytes == pytest.approx(float(row["output_kb"]) * 1000, abs=0.1)
        assert profile.weights_bytes == pytest.approx(float(row["weights_mb"]) * 1e6, abs=0.1)
        assert profile.pages(PAGE_BYTES) == int(row["pages_16mib"])
        assert profile.load == Constant(round(float(row["load_ms"]) * 1e6))
        assert profile.batch_sizes == (1, 2, 4, 8, 16)
        for batch, durations in profile.exec.items():
            assert durations == Constant(round(float(row[f"exec_b{batch}_ms"]) * 1e6))


def test_load_times_of_the_v100_store_fit_one_speed():
    """12.27 GB/s within 1 %, so that a typing error in either column would stand out."""
    speeds = {p.name: p.weights_bytes / p.load.mean_ns() for p in find("clockwork_v100/*")}
    # The one exception is in the paper's table as it was typed; the profile's note says so.
    assert speeds.pop("densenet169") == pytest.approx(12.56, abs=0.01)
    assert list(speeds.values()) == pytest.approx([12.27] * 63, rel=0.01)


def test_the_likely_misprint_is_flagged():
    (profile,) = find("clockwork_v100/winograd_resnet152_v2")
    assert "misprint" in profile.note


def test_resnet50_is_as_the_clockwork_documentation_measured_it():
    """Source: docs/firstrun of the Clockwork source code."""
    (profile,) = find("clockwork_docs/resnet50_v2")
    assert (profile.weights_bytes, profile.input_bytes, profile.output_bytes) == (
        102_160_300,
        602_112,
        4_000,
    )
    assert profile.pages(PAGE_BYTES) == 7
    assert profile.load == Constant(8_310_000)
    assert [durations.mean_ns() / 1e6 for durations in profile.exec.values()] == [
        2.73,
        4.05,
        5.88,
        9.93,
        17.33,
    ]


def test_the_fast_profile_is_one_page_and_says_that_it_is_invented():
    (profile,) = find("clockwork_docs/fast")
    assert profile.pages(PAGE_BYTES) == 1
    assert "invented" in profile.source

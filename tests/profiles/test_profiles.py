"""What a profile file may hold, and what is said about one that is wrong."""

import warnings

import pytest

from profiles import Constant, ProfileError, ProfileWarning, Quantiles, Samples, find, read

HEAD = 'schema = 1\ndevice = "X"\nsource = "a test"\nlicence = "none"\n'
MODEL = "weights_bytes = 100\ninput_bytes = 2\noutput_bytes = 1\n"


@pytest.fixture
def write(tmp_path):
    def write(body, head=HEAD):
        path = tmp_path / "mine.toml"
        path.write_text(head + body, encoding="utf-8")
        return path

    return write


def model(exec_ms="{ 1 = 1 }", load_ms="1"):
    return f"[models.m]\n{MODEL}load_ms = {load_ms}\nexec_ms = {exec_ms}\n"


def test_a_duration_is_a_number_or_quantiles_or_samples(write):
    two = '{ quantiles = { "0.99" = 4.2, "0.5" = 4.05 } }'
    exec_ms = f"{{ 1 = 2.73, 2 = {two}, 4 = {{ samples = [6, 5.5] }} }}"
    (profile,) = read(write(model(exec_ms, load_ms="8.31")))
    assert profile.load == Constant(8_310_000)
    assert profile.at_batch(1) == Constant(2_730_000)
    assert profile.at_batch(2) == Quantiles((0.5, 0.99), (4_050_000, 4_200_000))
    assert profile.at_batch(4) == Samples((6_000_000, 5_500_000))


def test_batch_sizes_ascend_whatever_the_order_of_the_file(write):
    (profile,) = read(write(model("{ 16 = 3, 2 = 2, 1 = 1 }")))
    assert profile.batch_sizes == (1, 2, 16)


def test_a_model_has_the_device_and_source_of_its_file_or_its_own(write):
    (profile,) = read(write(model() + 'source = "elsewhere"\nnote = "odd"\n'))
    assert (profile.device, profile.source, profile.note) == ("X", "elsewhere", "odd")


def test_pages_are_rounded_up(write):
    (profile,) = read(write(model()))
    assert [profile.pages(page) for page in (1, 50, 51, 99, 100, 101)] == [100, 2, 2, 2, 1, 1]


def test_bug_prf_03_a_larger_batch_may_be_faster_and_is_kept_with_a_warning(write):
    with pytest.warns(ProfileWarning) as caught:
        (profile,) = read(write(model("{ 1 = 5, 2 = 6, 4 = 12, 8 = 11 }")))
    assert [str(warning.message) for warning in caught] == [
        "m on X: batch 8 (11 ms) is faster than batch 4 (12 ms); used as measured"
    ]
    fast = [b for b in profile.batch_sizes if profile.at_batch(b).estimate_ns() <= 11_200_000]
    assert max(fast) == 8


@pytest.mark.parametrize("batch", [8, 33, 128])
def test_bug_prf_04_nothing_is_invented_between_or_beyond_the_measured_sizes(write, batch):
    (profile,) = read(write(model("{ 1 = 11, 64 = 74 }")))
    with pytest.raises(ProfileError) as error:
        profile.at_batch(batch)
    assert str(error.value) == (
        f"no profile for m at batch {batch} (have 1, 64); "
        "add it, or run a batch size that was measured"
    )


def test_bug_prf_05_a_profile_without_batch_1_lists_what_it_has(write):
    (profile,) = read(write(model("{ 4 = 10, 8 = 18 }")))
    with pytest.raises(ProfileError, match=r"no profile for m at batch 1 \(have 4, 8\)"):
        profile.at_batch(1)


def test_bug_prf_06_every_shipped_profile_says_its_device():
    assert {p.device for p in find("clockwork_v100/*")} == {"NVIDIA V100"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "mine.toml: Object missing required field `models`"),
        ("[models]", "mine.toml: no models; expected at least one table [models.NAME]"),
        (
            model("{ 0 = 1 }"),
            "mine.toml: models.m.exec_ms: 0 is not a batch size; expected a whole number above 0",
        ),
        (
            model("{ two = 1 }"),
            "mine.toml: models.m.exec_ms: two is not a batch size; expected a whole number above 0",
        ),
        (
            model("{}"),
            "mine.toml: models.m: exec_ms is empty; expected at least one batch size, such as 1",
        ),
        (
            model("{ 1 = -2.5 }"),
            "mine.toml: models.m.exec_ms.1: -2.5 is not a duration; "
            "expected milliseconds, finite and above 0",
        ),
        (
            model(load_ms="nan"),
            "mine.toml: models.m.load_ms: nan is not a duration; "
            "expected milliseconds, finite and above 0",
        ),
        (
            model(load_ms="inf"),
            "mine.toml: models.m.load_ms: inf is not a duration; "
            "expected milliseconds, finite and above 0",
        ),
        (
            model(load_ms="true"),
            "mine.toml: models.m.load_ms: True is not a duration; expected milliseconds, "
            '{ quantiles = { "0.5" = ms } } or { samples = [ms] }',
        ),
        (
            model(load_ms="{ sample = [1] }"),
            "mine.toml: models.m.load_ms: {'sample': [1]} is not a duration; expected "
            'milliseconds, { quantiles = { "0.5" = ms } } or { samples = [ms] }',
        ),
        (
            model(load_ms="{ quantiles = { p50 = 1 } }"),
            "mine.toml: models.m.load_ms: p50 is not a quantile; "
            'expected a share in quotes, such as "0.99"',
        ),
        (
            model(load_ms='{ quantiles = { "0.5" = 2, "0.9" = 1 } }'),
            "mine.toml: models.m.load_ms: quantile 0.9 (1000000 ns) is below quantile 0.5 "
            "(2000000 ns); expected durations that do not fall",
        ),
        (
            model() + "weight = 3\n",
            "mine.toml: models.m: Object contains unknown field `weight`",
        ),
        (
            model().replace("weights_bytes = 100", 'weights_bytes = "100"'),
            "mine.toml: models.m: weights_bytes = '100': Expected `int`, got `str`",
        ),
        (
            model().replace("weights_bytes = 100", "weights_bytes = 0"),
            "mine.toml: models.m: weights_bytes = 0; expected bytes, above 0",
        ),
        (
            model().replace("input_bytes = 2", "input_bytes = -2"),
            "mine.toml: models.m: input_bytes = -2; expected bytes, at least 0",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(write, body, message):
    with pytest.raises(ProfileError) as error:
        read(write(body))
    assert str(error.value) == message


def test_a_later_schema_is_not_guessed_at(write):
    with pytest.raises(ProfileError) as error:
        read(write(model(), head=HEAD.replace("schema = 1", "schema = 2")))
    assert str(error.value) == "mine.toml: schema = 2; this version reads schema = 1"


def test_a_file_that_is_no_toml_is_refused_with_its_line(write):
    with pytest.raises(ProfileError, match=r"^mine.toml: not valid TOML: .*line 5"):
        read(write("[models.m\n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"gone.toml: No such file or directory; expected"):
        read(tmp_path / "gone.toml")


def test_reading_the_shipped_stores_warns_of_nothing():
    from profiles.store import DATA

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in DATA.glob("*.toml"):
            read(path)

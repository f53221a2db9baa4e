import msgspec
import pytest

from mainspring.reproduce.rows import compared, numbered, print_rows, shape, told


def test_a_number_holds_up_to_the_larger_of_its_allowances():
    def verdict(obtained):
        return compared("f", "q", 100.0, "published", obtained, relative=0.02, absolute=0.5).verdict

    assert [verdict(value) for value in (98.0, 102.0, 97.9, 102.1)] == [
        "holds", "holds", "falls short", "falls short",
    ]  # fmt: skip
    small = compared("f", "q", 10.0, "physics", 10.5, relative=0.02, absolute=0.5)
    assert small.verdict == "holds"
    assert small.tolerance == "2% or 0.5"
    assert small.difference == pytest.approx(0.05)


def test_a_shape_names_its_inequality_and_needs_no_number():
    holds = shape("f", "q", "at least 99%", 0.995, holds=True)
    assert (holds.verdict, holds.reference, holds.difference) == ("shape holds", None, None)
    fails = shape("f", "q", "at least 99%", 0.9, holds=False, reference=0.99)
    assert fails.verdict == "shape fails"
    assert fails.difference == pytest.approx(-0.0909, abs=1e-4)


def test_what_has_no_reference_gets_no_verdict_of_its_own():
    assert told("f", "q", 3.0).verdict == "no reference"
    assert told("f", "q", 3.0, reference=2.0, source="published").difference == 0.5


def test_rows_print_and_travel_as_json(capsys):
    rows = [told("fig9", "share", 0.99999912), compared("fig5", "x", 0.0, "physics", 0.0)]
    print_rows(rows)
    printed = capsys.readouterr().out
    assert "0.9999991" in printed
    decoded = msgspec.json.decode(msgspec.json.encode({"rows": rows}))
    assert list(decoded["rows"][0]) == [
        "figure", "quantity", "reference", "source", "obtained", "difference", "tolerance",
        "verdict", "cause",
    ]  # fmt: skip


def test_a_row_in_a_file_is_one_line_unless_a_width_is_told(capsys, monkeypatch):
    rows = [told("fig9", "a quantity of many words " * 2, 1.0, source="somebody's table " * 2)]
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 100
    monkeypatch.setenv("COLUMNS", "100")
    print_rows(rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_only_a_row_that_misses_has_a_cause_and_rows_that_share_one_share_its_number(capsys):
    rows = [
        compared("f", "a", 1.0, "published", 2.0, cause="because of a"),
        compared("f", "b", 1.0, "published", 1.0, cause="because of b"),
        shape("f", "c", "at least 1", 0.0, holds=False, cause="because of c"),
        shape("f", "d", "at least 1", 0.0, holds=False, cause="because of a"),
        shape("f", "e", "at least 1", 0.0, holds=False),
        told("f", "g", 1.0),
    ]
    assert [row.cause for row in rows] == [
        "because of a", "", "because of c", "because of a", "", "",
    ]  # fmt: skip
    assert numbered(rows) == {"because of a": 1, "because of c": 2, "not known": 3}
    print_rows(rows)
    printed = capsys.readouterr().out
    assert "falls short (1)" in printed
    assert "(2) because of c" in printed
    assert "1 hold, 4 miss, 0 fitted, 1 told" in printed

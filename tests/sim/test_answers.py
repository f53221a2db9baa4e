"""Labels that models say, drawn."""

import numpy as np
import pytest

from sim.answers import BLOCK, Answers

ERRORS = (0.1, 0.25, 0.5)


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.95])
def test_each_model_errs_at_its_own_rate_however_alike_they_are(alike):
    truth, said = Answers(ERRORS, 10, alike, 0.5, 1).block(0, 100_000)
    assert (said != truth[:, None]).mean(axis=0) == pytest.approx(ERRORS, abs=0.006)


def test_models_that_are_alike_err_together():
    def both_wrong(alike):
        truth, said = Answers((0.2, 0.2), 10, alike, 0.0, 1).block(0, 100_000)
        return (said != truth[:, None]).all(axis=1).mean()

    assert both_wrong(0.0) == pytest.approx(0.04, abs=0.003)  # independent: 0.2 x 0.2
    assert both_wrong(1.0) == pytest.approx(0.2, abs=0.005)  # the same queries


def test_wrong_answers_are_the_same_as_often_as_they_are_confused():
    def same_wrong(confused):
        truth, said = Answers((0.5, 0.5), 10, 0.0, confused, 1).block(0, 100_000)
        wrong = (said != truth[:, None]).all(axis=1)
        return (said[wrong, 0] == said[wrong, 1]).mean()

    assert same_wrong(0.0) == pytest.approx(1 / 9, abs=0.01)
    assert same_wrong(1.0) == 1.0


def test_answers_do_not_depend_on_who_asks_first():
    one, other = (Answers(ERRORS, 10, 0.3, 0.3, 5) for _ in range(2))
    requests = [3, BLOCK + 1, 0, 2 * BLOCK, 5]
    forward = [(one.truth(r), one.says(r, 1)) for r in requests]
    backward = [(other.truth(r), other.says(r, 1)) for r in reversed(requests)]
    assert forward == backward[::-1]
    truth, said = one.block(1)
    assert (one.truth(BLOCK + 1), one.says(BLOCK + 1, 2)) == (truth[1], said[1, 2])


def test_labels_are_used_alike():
    truth, said = Answers((0.5,), 4, 0.0, 0.0, 1).block(0, 100_000)
    assert np.bincount(truth) / 1e5 == pytest.approx([0.25] * 4, abs=0.01)
    assert np.bincount(said[:, 0]) / 1e5 == pytest.approx([0.25] * 4, abs=0.01)


@pytest.mark.parametrize(
    ("errors", "labels", "alike", "message"),
    [
        ((1.5,), 10, 0.1, "error = 1.5 is not a share"),
        ((0.5,), 1, 0.1, "labels = 1; expected at least 2"),
        ((0.5,), 10, -1, "alike = -1 is not a share"),
    ],
)
def test_what_is_no_share_is_refused(errors, labels, alike, message):
    with pytest.raises(ValueError, match=message):
        Answers(errors, labels, alike, 0.1, seed=1)

"""Exp3, Exp4 and ensembles with exact numbers."""

import math
import os
from itertools import groupby

import numpy as np
import pytest

from scheduler.selection import (
    Draw,
    Exp3,
    Exp3Gamma,
    Exp4,
    Exp4Rule,
    Selections,
    agreement,
    exp4_gamma,
    exp4_gamma_update,
    majority,
)

RNG = np.random.default_rng(1)


def test_exp3_divides_the_loss_by_the_probability_of_the_draw():
    policy = Exp3(2, eta=0.5)
    policy.observe(Draw(0, 0.5), 1.0)  # weight exp(-1)
    assert policy.weights() == pytest.approx([math.exp(-1), 1])
    share = math.exp(-1) / (1 + math.exp(-1))
    assert policy.probabilities() == pytest.approx([share, 1 - share])


def test_late_feedback_is_divided_by_the_probability_at_the_draw():
    policy = Exp3(2, eta=0.5)
    early = Draw(0, 0.5)
    policy.observe(Draw(1, 0.5), 1.0)
    policy.observe(Draw(1, 0.27), 1.0)
    before = policy.weights()
    policy.observe(early, 1.0)
    after = policy.weights()
    assert after[0] / after[1] == pytest.approx(before[0] / before[1] * math.exp(-0.5 / 0.5))


def test_exploration_is_shared_by_all_arms():
    """BUG-COR-13."""
    policy = Exp3Gamma(3, 0.3)
    policy.set_weights([8, 1, 1])
    assert policy.probabilities() == pytest.approx([0.66, 0.17, 0.17])
    policy = Exp3Gamma(2, 0.5)
    policy.set_weights([3, 1])
    assert policy.probabilities()[0] == pytest.approx(0.625)
    policy.observe(Draw(0, 0.625), 1.0)
    assert policy.weights()[0] == pytest.approx(4.47547, abs=1e-5)


def test_gains_do_not_overflow():
    """BUG-COR-12."""
    policy = Exp3Gamma(2, 0.1)
    rng = np.random.default_rng(3)
    for _ in range(100_000):
        shares = policy.probabilities()
        arm = int(rng.random() >= shares[0])
        policy.observe(Draw(arm, shares[arm]), float(arm == 0))
    assert policy.probabilities() == pytest.approx([0.95, 0.05], abs=1e-12)
    assert math.fsum(policy.probabilities()) == pytest.approx(1, abs=1e-12)


def test_exp4_has_one_weight_for_each_expert():
    """BUG-COR-14."""
    advice = [(1, 0, 0), (0, 0.5, 0.5)]
    shares = exp4_gamma(advice, [1, 1], 0.3)
    assert shares == pytest.approx([0.45, 0.275, 0.275])
    weights = exp4_gamma_update(advice, [1, 1], 0.3, 1, 1.0, shares[1])
    assert weights == pytest.approx([1, 1.199396], abs=1e-6)


def test_exp4_by_loss_judges_every_member():
    policy = Exp4(3, eta=0.1)
    labels = [1, 1, 2]
    vote = policy.combine(labels, RNG)
    assert (vote.label, vote.confidence) == (1, pytest.approx(2 / 3))
    policy.observe(vote, labels, truth=2)
    assert policy.weights() == pytest.approx([math.exp(-0.3), math.exp(-0.3), 1])


def test_exp4_by_label_judges_those_that_said_it():
    policy = Exp4(3, eta=0.1, rule=Exp4Rule.LABEL)
    labels = [1, 1, 2]
    vote = policy.combine(labels, np.random.default_rng(0))  # draws 0.64: label 1 at 2/3
    assert (vote.label, vote.probability) == (1, pytest.approx(2 / 3))
    policy.observe(vote, labels, truth=0)
    assert policy.weights() == pytest.approx([math.exp(-0.15), math.exp(-0.15), 1])


def test_a_missing_member_neither_votes_nor_learns():
    policy = Exp4(3, eta=0.1)
    vote = policy.combine([None, 4, None], RNG)
    assert (vote.label, vote.confidence) == (4, pytest.approx(1 / 3))
    policy.observe(vote, [None, 4, None], truth=5)
    assert policy.weights() == pytest.approx([1, math.exp(-0.3), 1])
    assert agreement(4, [None, 4, None], of_all=False) == 1
    with pytest.raises(ValueError, match="no member answered"):
        policy.combine([None, None, None], RNG)
    with pytest.raises(ValueError, match="no member answered"):
        majority([None])


def test_a_new_model_gets_the_mean_weight():
    policy = Exp3(2, eta=1.0)
    policy.observe(Draw(0, 0.5), 0.5)
    policy.join()
    assert policy.weights() == pytest.approx([math.exp(-1), 1, (1 + math.exp(-1)) / 2])


def test_users_do_not_learn_from_each_other():
    states = Selections(2, 0.5)
    states["ann", "home"].observe(Draw(0, 0.5), 1.0)
    assert states["bob", "home"].probabilities() == [0.5, 0.5]
    assert states["ann", "home"].probabilities()[0] < 0.5


def test_draws_are_not_the_same_again_and_again():
    """BUG-COR-09."""
    rng = np.random.default_rng(7)
    drawn = [Exp3(2, 0.1).select(rng).model for _ in range(1000)]
    assert 450 <= drawn.count(0) <= 550
    assert max(len(list(run)) for _, run in groupby(drawn)) < 25


def test_a_member_that_was_always_wrong_can_still_be_judged():
    policy = Exp4(2, eta=0.2)
    for _ in range(50):
        vote = policy.combine([0, 1], RNG)
        policy.observe(vote, [0, 1], truth=1)
    assert policy.weights()[0] > 0
    for _ in range(10):
        vote = policy.combine([0, 1], RNG)
        policy.observe(vote, [0, 1], truth=0)
    assert all(math.isfinite(weight) for weight in policy.weights())


def test_weights_stay_finite():
    rounds = 10**7 if os.environ.get("MAINSPRING_SOAK") else 10**5
    policy = Exp3(3, eta=0.2)
    draws = np.random.default_rng(5)
    for i in range(rounds):
        draw = policy.select(draws)
        # The best model changes half-way, and has to be found again.
        policy.observe(draw, float(draw.model != (0 if i < rounds // 2 else 1)))
    shares = policy.probabilities()
    assert all(math.isfinite(weight) for weight in policy.weights())
    assert math.fsum(shares) == pytest.approx(1, abs=1e-12)

from __future__ import annotations

import numpy as np
import pytest

from kltune.statistics.reweight import balance
from kltune.statistics.tilt import tilt

REFERENCE = np.array([0.6, 0.25, 0.1, 0.045, 0.005])
TRAINED = np.array([[0.1, 0.2, 0.4, 0.25, 0.05], [0.05, 0.05, 0.1, 0.3, 0.5]])
REWARD = np.array([0.0, 0.2, 0.6, 1.0, 1.5])
BETA = 0.25


def _optimum() -> tuple[float, float]:
    policy = REFERENCE * np.exp(REWARD / BETA)
    policy /= policy.sum()
    return float(policy @ REWARD), float((policy * np.log(policy / REFERENCE)).sum())


def test_a_mixture_in_its_exact_shares_gives_the_enumerated_optimum() -> None:
    policies = np.stack([REFERENCE, *TRAINED])
    counts = np.array([200, 200, 400])
    each = [
        np.repeat(np.arange(5), np.rint(p * n).astype(int))
        for p, n in zip(policies, counts, strict=True)
    ]
    drawn = np.concatenate(each)
    log_ratio_SPM = np.log(policies / REFERENCE)[:, None, drawn]
    found = tilt(REWARD[drawn][None], BETA, balance(log_ratio_SPM, counts))
    proxy, kl = _optimum()
    assert found.mean_P(REWARD[drawn][None])[0] == pytest.approx(proxy, abs=1e-6)
    assert found.kl_P[0] == pytest.approx(kl, abs=1e-6)


def test_trained_policies_see_the_optimum_where_as_many_of_the_reference_do_not() -> None:
    generator = np.random.default_rng(0)
    prompts, count = 500, 20
    policies = np.stack([REFERENCE, *TRAINED])
    drawn = np.concatenate(
        [generator.choice(5, p=p, size=(prompts, count)) for p in policies], axis=1
    )
    log_ratio_SPM = np.log(policies / REFERENCE)[:, drawn]
    mixed = tilt(REWARD[drawn], BETA, balance(log_ratio_SPM, np.full(3, count)))
    alone_drawn = generator.choice(5, p=REFERENCE, size=(prompts, 3 * count))
    alone = tilt(REWARD[alone_drawn], BETA)
    _, kl = _optimum()
    assert abs(mixed.kl_P.mean() / kl - 1) < 0.03, (
        f"{prompts} prompts: {mixed.kl_P.mean()} against {kl}"
    )
    assert np.quantile(mixed.effective_P, 0.1) > 1.5 * np.quantile(alone.effective_P, 0.1)


def test_the_reference_alone_has_equal_weights() -> None:
    assert balance(np.zeros((1, 2, 4)), np.array([4])).tolist() == [[0.0] * 4] * 2


def test_no_weight_exceeds_the_reference_share() -> None:
    log_ratio_SPM = np.stack([np.zeros((1, 6)), np.full((1, 6), -50.0)])
    weights = np.exp(balance(log_ratio_SPM, np.array([2, 4])))
    assert weights.max() <= 6 / 2 + 1e-9


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 4"):
        balance(np.zeros((1, 1, 4)), np.array([3]))

"""kltune's RLOO against TRL's own RLOOTrainer on one batch: loss, gradient, advantages, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parity.own_step import Own, OwnStep, assert_same, assert_same_gradient, own_step
from parity.trl_batch import (
    SCORES,
    TRANSITION,
    GivenRLOO,
    Policies,
    Scores,
    TrlStep,
    policies,
    restored_process,
    trained,
    trl_step,
)

from kltune.spec.penalty import Penalty

pytestmark = pytest.mark.filterwarnings(TRANSITION)

RLOO = Own(algorithm="rloo", aggregation="seq-mean-token-sum", importance="sequence")
PAID = replace(RLOO, penalty=Penalty.K1_REWARD, beta=0.3)
PAIRS = {
    "no KL": ({"beta": 0.0}, RLOO),
    "k1 in the reward": ({"beta": 0.3}, PAID),
    "epsilon_high": (
        {"beta": 0.3, "epsilon": 0.1, "epsilon_high": 0.28},
        replace(PAID, clip_low=0.1, clip_high=0.28),
    ),
    "clipped score": (
        {"beta": 0.3, "reward_clip_range": (-0.5, 0.5)},
        replace(PAID, score_clip=0.5),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _process() -> Iterator[None]:
    with restored_process():
        yield


@pytest.fixture(scope="module", params=[False, True], ids=["on-policy", "off-policy"])
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policies:
    return policies(tmp_path_factory.mktemp("reference"), off_policy=request.param)


@pytest.fixture(scope="module")
def off_policy(tmp_path_factory: pytest.TempPathFactory) -> Policies:
    return policies(tmp_path_factory.mktemp("reference"), off_policy=True)


def both(
    pair: tuple[dict[str, Any], Own], given: Policies, folder: Path, scores: Scores = SCORES
) -> tuple[TrlStep, OwnStep]:
    fields, own = pair
    return trl_step(GivenRLOO, given, folder, scores, **fields), own_step(own, given, scores)


@pytest.mark.parametrize("name", PAIRS)
def test_loss_gradient_and_advantages_equal_trls(
    name: str, given: Policies, tmp_path: Path
) -> None:
    assert_same(*both(PAIRS[name], given, tmp_path))


def test_the_off_policy_batch_reaches_every_branch(off_policy: Policies, tmp_path: Path) -> None:
    theirs, _ = both(PAIRS["k1 in the reward"], off_policy, tmp_path)
    assert theirs.metrics["clip_ratio/low_mean"] > 0
    assert theirs.metrics["clip_ratio/high_mean"] > 0
    assert theirs.metrics["clip_ratio/region_mean"] < 0.7
    free, _ = both(PAIRS["no KL"], off_policy, tmp_path)
    moved = (theirs.inputs["advantages"] - free.inputs["advantages"]).abs()
    assert float(moved.max()) > 0.1, "the KL pays nothing"


def test_kl_and_entropy_metrics_equal_trls(given: Policies, tmp_path: Path) -> None:
    theirs, ours = both(PAIRS["k1 in the reward"], given, tmp_path)
    logged = theirs.metrics
    assert ours.token_mean(ours.paid_kl_NT) == pytest.approx(logged["kl"], rel=1e-5)
    assert ours.token_mean(ours.entropy_NT) == pytest.approx(logged["entropy"], rel=1e-5)
    assert ours.zero_group_frac == logged["frac_reward_zero_std"] == 0.0


def test_completions_without_a_score_are_treated_as_trl_does(
    given: Policies, tmp_path: Path
) -> None:
    scores = (None, 0.9, 1.9, 0.2, None, None, None, 0.9, None, None, None, None)
    assert_same(*both(PAIRS["k1 in the reward"], given, tmp_path, scores))


def test_micro_batches_add_up_to_trls_accumulated_gradient_in_its_training_loop(
    given: Policies, tmp_path: Path
) -> None:
    recorded = trained(GivenRLOO, given, tmp_path, beta=0.3)
    assert len(recorded.models) == 2
    for now, gradient_P in zip(recorded.models, recorded.gradients_P, strict=True):
        step = replace(given, now=now)
        ours = own_step(PAID, step, micro_batches=(slice(0, 5), slice(5, 12)))
        assert_same_gradient(gradient_P, ours)

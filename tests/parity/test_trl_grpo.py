"""kltune's GRPO against TRL's own GRPOTrainer on one batch: loss, gradient, advantages, metrics."""

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
    GivenGRPO,
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

CLASSIC = {"beta": 0.2, "use_bias_correction_kl": False}
CORRECTED = {"beta": 0.2, "use_bias_correction_kl": True}
DR_GRPO = {"loss_type": "dr_grpo", "scale_rewards": "none"}
NO_KL = Own()
K3 = Own(penalty=Penalty.K3_LOSS, beta=0.2)
WK3 = Own(penalty=Penalty.WK3_LOSS, beta=0.2)


def seq_mean(own: Own) -> Own:
    return replace(own, aggregation="seq-mean-token-mean")


def dr_grpo(own: Own) -> Own:
    return replace(own, algorithm="dr-grpo", aggregation="constant")


PAIRS: dict[str, tuple[dict[str, Any], Own]] = {
    "dapo": ({"beta": 0.0}, NO_KL),
    "dapo k3": (CLASSIC, K3),
    "dapo wk3": (CORRECTED, WK3),
    "bnpo wk3": ({"loss_type": "bnpo", **CORRECTED}, WK3),
    "grpo": ({"loss_type": "grpo", "beta": 0.0}, seq_mean(NO_KL)),
    "grpo k3": ({"loss_type": "grpo", **CLASSIC}, seq_mean(K3)),
    "grpo wk3": ({"loss_type": "grpo", **CORRECTED}, seq_mean(WK3)),
    "dr_grpo": ({**DR_GRPO, "beta": 0.0}, dr_grpo(NO_KL)),
    "dr_grpo k3": ({**DR_GRPO, **CLASSIC}, dr_grpo(K3)),
    "dr_grpo wk3": ({**DR_GRPO, **CORRECTED}, dr_grpo(WK3)),
    "dapo unscaled": ({"scale_rewards": "none", **CLASSIC}, replace(K3, algorithm="dr-grpo")),
    "epsilon_high": (
        {"epsilon": 0.1, "epsilon_high": 0.28, **CORRECTED},
        replace(WK3, clip_low=0.1, clip_high=0.28),
    ),
    "delta": ({"delta": 1.4, **CLASSIC}, replace(K3, clip_max=1.4)),
    "entropy_coef": ({"entropy_coef": 0.3, **CORRECTED}, replace(WK3, entropy_bonus=0.3)),
}
"""TRL's settings, and kltune's that must mean the same."""


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
    return trl_step(GivenGRPO, given, folder, scores, **fields), own_step(own, given, scores)


@pytest.mark.parametrize("name", PAIRS)
def test_loss_gradient_and_advantages_equal_trls(
    name: str, given: Policies, tmp_path: Path
) -> None:
    assert_same(*both(PAIRS[name], given, tmp_path))


def test_the_off_policy_batch_reaches_every_branch(off_policy: Policies, tmp_path: Path) -> None:
    bounded, free = (both(PAIRS[name], off_policy, tmp_path)[0] for name in ("delta", "dapo k3"))
    assert bounded.metrics["clip_ratio/low_mean"] > 0
    assert bounded.metrics["clip_ratio/high_mean"] > 0
    assert abs(bounded.loss - free.loss) > 0.01, "delta bounds nothing"
    classic, corrected = (
        both(PAIRS[name], off_policy, tmp_path)[0].gradient_P for name in ("dapo k3", "dapo wk3")
    )
    assert float((classic - corrected).norm() / classic.norm()) > 0.1


@pytest.mark.parametrize("name", ["dapo k3", "dapo wk3"])
def test_kl_entropy_and_clip_metrics_equal_trls(name: str, given: Policies, tmp_path: Path) -> None:
    theirs, ours = both(PAIRS[name], given, tmp_path)
    logged = theirs.metrics
    assert ours.kl == pytest.approx(logged["kl"], rel=1e-5)
    assert ours.token_mean(ours.entropy_NT) == pytest.approx(logged["entropy"], rel=1e-5)
    clipped = ours.clipped_tokens / int(ours.mask_NT.sum())
    assert clipped == pytest.approx(logged["clip_ratio/region_mean"], rel=1e-5)
    assert ours.zero_group_frac == pytest.approx(logged["frac_reward_zero_std"])


@pytest.mark.parametrize("name", ["dapo wk3", "dr_grpo k3"])
@pytest.mark.parametrize(
    "scores",
    [
        (0.7, None, 1.9, 0.2, None, None, None, 0.9, None, None, None, None),
        (None, None, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 5.0, -5.0, 1e4, 0.0),
    ],
    ids=["one left, none left", "two left"],
)
def test_completions_without_a_score_are_treated_as_trl_does(
    name: str, scores: Scores, off_policy: Policies, tmp_path: Path
) -> None:
    assert_same(*both(PAIRS[name], off_policy, tmp_path, scores))


@pytest.mark.parametrize("name", ["dapo wk3", "grpo k3", "dr_grpo wk3"])
def test_micro_batches_add_up_to_trls_accumulated_gradient_in_its_training_loop(
    name: str, given: Policies, tmp_path: Path
) -> None:
    fields, own = PAIRS[name]
    recorded = trained(GivenGRPO, given, tmp_path, **fields)
    assert len(recorded.models) == 2
    for now, gradient_P in zip(recorded.models, recorded.gradients_P, strict=True):
        step = replace(given, now=now)
        ours = own_step(own, step, micro_batches=(slice(0, 5), slice(5, 12)))
        assert_same_gradient(gradient_P, ours)

"""Where each penalty ends: by sampling through the bank's own step, and by expected gradients in float64.

One prompt, two tokens of five, a random reward per pair. Penalties with the gradient of the whole
sequence's KL must end at ref exp(R / beta), token-local ones at a point of their own, the forward
ones and Jeffreys' elsewhere; the points are solved apart from kltune (two_tokens.py).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from parity.ascent import GROUP, Rule, ascend, loss_gradient, resting_norm
from parity.two_token_bank import bank_of, even_uniforms, policy_of, trained
from parity.two_tokens import Problem, ends, problem, sequence_full, total_variation
from torch import Tensor

from kltune.spec.algorithm import Algorithm, Credit
from kltune.spec.penalty import Penalty

pytestmark = pytest.mark.parity

SEED = 296
"""Of the reward table: one that sets the four points well apart."""
BETA = 1.0
APART = 0.15
TOLERANCE = 0.03
KIND = {
    Penalty.K1_REWARD: "whole",
    Penalty.EXACT_FULL: "whole",
    Penalty.K2_LOSS: "local",
    Penalty.WK1_LOSS: "local",
    Penalty.WK3_LOSS: "local",
    Penalty.K3PLUS_LOSS: "local",
    Penalty.EXACT_LOSS: "local",
    Penalty.TOPK_LOSS: "local",
    Penalty.K3_LOSS: "forward",
    Penalty.FORWARD_LOSS: "forward",
    Penalty.JEFFREYS_LOSS: "jeffreys",
}
"""Every sound penalty, and where it ends."""
WHOLE = [penalty for penalty, kind in KIND.items() if kind == "whole"]
ALGORITHMS: list[Algorithm] = ["rloo", "dr-grpo"]
SMALL_GROUPS = [Penalty.K1_REWARD, Penalty.EXACT_FULL, Penalty.K2_LOSS, Penalty.EXACT_LOSS, Penalty.K3_LOSS]  # fmt: skip
"""Sampled under dr-grpo too, in groups so small that the share its baseline takes would show."""
SHARE = {"rloo": 1.0, "dr-grpo": (GROUP - 1) / GROUP}


@pytest.fixture(scope="module")
def given() -> Problem:
    """The reference is the tiny Llama's own policy."""
    return problem(policy_of(bank_of(None), None), SEED, BETA)


@pytest.fixture(scope="module")
def points(given: Problem) -> dict[str, Tensor]:
    return ends(given)


@pytest.fixture
def even_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kltune.trainer.train_step.uniforms", even_uniforms)


def only_near(got_VV: Tensor, points: dict[str, Tensor], kind: str, within: float) -> None:
    """At its own point, and at no other one."""
    distance = {k: total_variation(got_VV, point) for k, point in points.items()}
    assert distance.pop(kind) < within, (kind, distance)
    assert min(distance.values()) > APART - within, (kind, distance)


def test_the_points_are_far_from_each_other_and_from_the_start(
    given: Problem, points: dict[str, Tensor]
) -> None:
    for one, other in combinations([given.ref_VV, *points.values()], 2):
        assert float(one.sum()) == pytest.approx(1, abs=1e-12)
        assert total_variation(one, other) > APART


# by sampling


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
@pytest.mark.parametrize("penalty", KIND)
def test_sampled_rloo_in_one_big_group(
    given: Problem, points: dict[str, Tensor], penalty: Penalty
) -> None:
    got_VV = trained(given, penalty, algorithm="rloo", kl={"top_k": 2})
    only_near(got_VV, points, KIND[penalty], TOLERANCE)


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
@pytest.mark.parametrize("penalty", SMALL_GROUPS)
def test_sampled_dr_grpo_in_groups_of_four(
    given: Problem, points: dict[str, Tensor], penalty: Penalty
) -> None:
    got_VV = trained(given, penalty, group_size=4, algorithm="dr-grpo")
    only_near(got_VV, points, KIND[penalty], TOLERANCE)


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
@pytest.mark.parametrize("penalty", WHOLE)
def test_sampled_reward_to_go(given: Problem, points: dict[str, Tensor], penalty: Penalty) -> None:
    got_VV = trained(given, penalty, algorithm="rloo", kl={"credit": "reward-to-go"})
    only_near(got_VV, points, "whole", TOLERANCE)


@pytest.mark.slow
def test_the_banks_own_draws_reach_the_same_optimum(
    given: Problem, points: dict[str, Tensor]
) -> None:
    got_VV = trained(given, Penalty.K1_REWARD, algorithm="rloo")
    only_near(got_VV, points, "whole", TOLERANCE)


@pytest.mark.slow
def test_the_banks_own_draws_reach_the_local_point_with_more_noise(
    given: Problem, points: dict[str, Tensor]
) -> None:
    # R - beta KL still varies there, so plain draws of this size wander by more
    got_VV = trained(given, Penalty.K2_LOSS, algorithm="rloo")
    only_near(got_VV, points, "local", 2 * TOLERANCE)


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
def test_ppo_that_neither_discounts_nor_whitens_reaches_the_optimum(
    given: Problem, points: dict[str, Tensor]
) -> None:
    critic = {"gamma": 1.0, "gae_lambda": 1.0, "whiten": False, "value_clip": None}
    got_VV = trained(given, Penalty.K1_REWARD, algorithm="ppo", critic=critic)
    only_near(got_VV, points, "whole", TOLERANCE)


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
def test_grpo_with_small_groups_ends_at_neither_point(
    given: Problem, points: dict[str, Tensor]
) -> None:
    """beta / sigma_R is a convention: each group's own spread divides its rewards, but not the KL in the loss."""
    got_VV = trained(given, Penalty.K2_LOSS, group_size=4, algorithm="grpo")
    assert total_variation(got_VV, points["whole"]) > TOLERANCE
    assert total_variation(got_VV, points["local"]) > 2 * TOLERANCE


@pytest.mark.slow
@pytest.mark.usefixtures("even_draws")
def test_k1_in_the_loss_holds_nothing_back(given: Problem, points: dict[str, Tensor]) -> None:
    got_VV = trained(given, Penalty.K1_LOSS, algorithm="rloo")
    assert min(total_variation(got_VV, point) for point in points.values()) > 0.5
    assert float(got_VV.max()) > 0.9
    assert int(got_VV.argmax()) == int(given.reward_VV.argmax())


# by expected gradients


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("penalty", KIND)
def test_ascent_ends_at_its_own_point(
    given: Problem, points: dict[str, Tensor], penalty: Penalty, algorithm: Algorithm
) -> None:
    got_VV, norm = ascend(given, Rule(penalty, algorithm))
    assert norm < 1e-10
    point_VV = points[KIND[penalty]]
    assert float((got_VV - point_VV).abs().max()) < 1e-9
    only_near(got_VV, points, KIND[penalty], 1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("penalty", WHOLE)
def test_ascent_with_reward_to_go_ends_at_the_optimum(
    given: Problem, penalty: Penalty, algorithm: Algorithm
) -> None:
    got_VV, _ = ascend(given, Rule(penalty, algorithm, "reward-to-go"))
    assert total_variation(got_VV, sequence_full(given)) < 1e-6


def test_a_mean_per_token_halves_the_price_of_two_tokens(given: Problem) -> None:
    got_VV, _ = ascend(given, Rule(Penalty.K1_REWARD, "rloo", "length-mean"))
    halved = replace(given, beta=given.beta / 2)
    assert total_variation(got_VV, sequence_full(halved)) < 1e-6
    assert total_variation(got_VV, sequence_full(given)) > APART


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ascent_of_k1_in_the_loss_runs_to_the_best_completion(
    given: Problem, algorithm: Algorithm
) -> None:
    got_VV, _ = ascend(given, Rule(Penalty.K1_LOSS, algorithm))
    assert float(got_VV.max()) > 1 - 1e-6
    assert int(got_VV.argmax()) == int(given.reward_VV.argmax())


@pytest.mark.parametrize("penalty", [p for p in Penalty if p not in KIND])
def test_a_refused_penalty_rests_at_no_point(
    given: Problem, points: dict[str, Tensor], penalty: Penalty
) -> None:
    for point_VV in points.values():
        assert resting_norm(given, Rule(penalty), point_VV) > 1e-2


@pytest.mark.parametrize("penalty", KIND)
def test_a_sound_penalty_rests_at_its_own_point_alone(
    given: Problem, points: dict[str, Tensor], penalty: Penalty
) -> None:
    for kind, point_VV in points.items():
        norm = resting_norm(given, Rule(penalty), point_VV)
        assert norm < 1e-10 if kind == KIND[penalty] else norm > 1e-2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("penalty", "credit", "pays_own_token"),
    [
        (Penalty.K1_REWARD, "sequence", True),
        (Penalty.K1_REWARD, "reward-to-go", True),
        (Penalty.EXACT_FULL, "sequence", True),
        (Penalty.EXACT_FULL, "reward-to-go", True),
        (Penalty.EXACT_FULL, "reward-to-go", False),
    ],
)
def test_the_expected_gradient_is_that_of_the_objective_anywhere(
    given: Problem, algorithm: Algorithm, penalty: Penalty, credit: Credit, pays_own_token: bool
) -> None:
    """exact-full may pay a token's own exact KL in the reward or not: it does not depend on the token."""
    generator = torch.Generator().manual_seed(3)
    rule = Rule(penalty, algorithm, credit, pays_own_token)
    for _ in range(3):
        logits_CV = torch.randn(6, 5, generator=generator, dtype=torch.float64)
        got_CV = loss_gradient(given, rule, logits_CV)
        expected_CV = SHARE[algorithm] * objective_gradient(given, logits_CV)
        torch.testing.assert_close(got_CV, -expected_CV, rtol=0, atol=1e-10)
        assert float(expected_CV.norm()) > 1e-2


def objective_gradient(given: Problem, logits_CV: Tensor) -> Tensor:
    """Of E[R] - beta KL over whole completions, written out."""
    logits_CV = logits_CV.clone().requires_grad_(True)
    log_CV = logits_CV.log_softmax(-1)
    log_VV = log_CV[0][:, None] + log_CV[1:]
    paid_VV = given.reward_VV - given.beta * (log_VV - given.ref_VV.log())
    return torch.autograd.grad((log_VV.exp() * paid_VV).sum(), logits_CV)[0]

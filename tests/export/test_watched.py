"""Which logged number is the KL to the reference, what it is made of, and what undoes a trainer's own factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tripwire_case as case

from kltune.errors import SpecError
from kltune.export.watched import NATS_SEQUENCE, NATS_TOKEN, Watched, watched

ACTOR = "actor_rollout_ref.actor."


def seen(framework: str, version: str | None = None, **told: Any) -> Watched:
    return watched(
        case.exported(framework, version=version, **told), case.target(framework, version)
    )


def verl(version: str | None = None, **values: Any) -> Watched:
    told = {**case.TOLD["verl"], **{f"{ACTOR}{name}": value for name, value in values.items()}}
    return seen("verl", version, values=told)


def test_trl_logs_k3_for_grpo_and_k1_for_rloo_per_token() -> None:
    grpo, rloo = seen("trl"), seen("trl", builder="RLOOConfig")
    assert (grpo.name, grpo.unit, rloo.name, rloo.unit) == ("kl", NATS_TOKEN) * 2
    assert grpo.meaning.startswith("k3, mean over all completion tokens")
    assert rloo.meaning.startswith("k1, mean over all completion tokens")


def test_trls_rloo_of_old_logs_a_sum_per_completion() -> None:
    old = seen("trl", "0.18.2", builder="RLOOConfig", values={"kl_coef": 0.05})
    assert (old.name, old.unit) == ("objective/kl", NATS_SEQUENCE)


def test_verls_kl_in_the_reward_is_a_mean_of_means() -> None:
    told = {"algorithm.use_kl_in_reward": True, "algorithm.kl_penalty": "kl"}
    found = seen("verl", values=told)
    assert (found.name, found.unit, found.factor) == ("actor/reward_kl_penalty", NATS_TOKEN, 1)
    assert found.meaning.startswith("k1 of the policy at rollout, mean over each response's tokens")


def test_verl_0_3_calls_it_critic_kl() -> None:
    told = {"algorithm.use_kl_in_reward": True, "algorithm.kl_penalty": "kl"}
    assert seen("verl", "0.3.0", values=told).name == "critic/kl"


@pytest.mark.parametrize(
    ("mode", "unit", "factor"),
    [
        ("token-mean", NATS_TOKEN, 1),
        ("seq-mean-token-mean", NATS_TOKEN, 1),
        ("seq-mean-token-sum", NATS_SEQUENCE, 1),
        ("seq-mean-token-sum-norm", NATS_SEQUENCE, 512),
    ],
)
def test_verls_kl_in_the_loss_is_in_the_unit_of_the_losss_aggregation(
    mode: str, unit: str, factor: float
) -> None:
    found = verl(loss_agg_mode=mode, loss_scale_factor=512)
    assert (found.name, found.unit, found.factor) == ("actor/kl_loss", unit, factor)


def test_a_constant_that_is_not_set_is_the_length_limit() -> None:
    assert verl(loss_agg_mode="seq-mean-token-sum-norm").factor == 32


def test_a_sum_over_the_batch_has_no_limit() -> None:
    with pytest.raises(SpecError, match="loss_agg_mode token-sum"):
        verl(loss_agg_mode="token-sum")


def test_verl_0_6_divides_by_the_micro_batches_and_the_user_must_undo_it() -> None:
    for version, is_divided in (("0.5.0", False), ("0.6.0", True), ("0.8.0", False)):
        found = verl(version)
        assert found.factor == 1
        assert any("KL_FACTOR must be set by hand" in w for w in found.warnings) is is_divided


def test_verl_0_7_sums_over_the_updates_of_a_step() -> None:
    told = {**case.TOLD["verl"], f"{ACTOR}ppo_mini_batch_size": 16, f"{ACTOR}ppo_epochs": 2}
    found = seen("verl", "0.7.1", values={**told, "data.train_batch_size": 64})
    assert found.factor == pytest.approx(1 / 8)
    assert any("KL_FACTOR is 1 / 8" in warning for warning in found.warnings)


@pytest.mark.parametrize("name", ["k2", "mse"])
def test_k2_is_said_to_be_no_estimate_of_a_large_kl(name: str) -> None:
    assert any("k2, half the squared log-ratio" in w for w in verl(kl_loss_type=name).warnings)
    told = {**case.TOLD["openrlhf"], "--algo.kl.estimator": "k2"}
    assert any("k2" in warning for warning in seen("openrlhf", values=told).warnings)


def test_k3_with_a_straight_through_gradient_is_k3() -> None:
    found = verl(kl_loss_type="low_var_kl+")
    assert found.meaning.startswith("k3 of the policy now")
    assert found.warnings == ()


def test_openrlhfs_kl_is_one_name_for_two_means() -> None:
    loss = seen("openrlhf")
    reward = seen("openrlhf", values={"--algo.kl.estimator": "k1", "--algo.kl.init_coef": 0.01})
    assert (loss.name, reward.name) == ("kl", "kl")
    assert "k3 of the policy now, mean over tokens" in loss.meaning
    assert "k1 of the policy at rollout, mean over each response's tokens" in reward.meaning


def test_the_flags_of_openrlhf_before_0_11_are_read_too() -> None:
    told = {"--use_kl_loss": True, "--kl_estimator": "k2", "--init_kl_coef": 0.01}
    found = seen("openrlhf", "0.9.0", values=told)
    assert found.meaning.startswith("k2 of the policy now")


@pytest.mark.parametrize(
    ("framework", "values"),
    [
        ("trl", {"beta": 0.0}),
        ("verl", {f"{ACTOR}use_kl_loss": False, "algorithm.use_kl_in_reward": False}),
        ("openrlhf", {"--algo.kl.init_coef": 0.0}),
    ],
)
def test_beta_0_leaves_no_kl_to_watch_and_a_way_to_have_it(
    framework: str, values: dict[str, Any]
) -> None:
    (warning,) = seen(framework, values=values).warnings
    assert "holds no reference and logs no KL" in warning
    assert "logged" in warning.rpartition(";")[2]


def test_what_no_tripwire_reads_is_refused() -> None:
    told = replace(case.exported("trl"), framework="nemo-rl")
    with pytest.raises(SpecError, match=r"reads the log of trl, verl, openrlhf \(got 'nemo-rl'\)"):
        watched(told, case.target("trl"))

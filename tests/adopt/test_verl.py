from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import VERL_GRPO, read, refusal

from kltune.spec.penalty import Penalty

IN_LOSS = "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 4}, actor: {use_kl_loss: true, "
IN_REWARD = "algorithm: {adv_estimator: gae, use_kl_in_reward: true, "


def test_a_command_line_is_read_with_the_defaults_named(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", VERL_GRPO, name="run.sh")
    assert (found.kl.penalty, found.kl.beta, found.kl.beta_in) == (
        Penalty.K3_LOSS,
        0.001,
        "advantage",
    )
    assert (found.prompts, found.group, found.trainer["minibatches"]) == (64, 8, 2)
    assert found.trainer["learning_rate"] == 1e-6
    assert found.defaults["actor_rollout_ref.actor.clip_ratio_c"] == 3.0
    assert found.unread == ("trainer.nnodes",)
    assert found.base == "org/some-model"


@pytest.mark.parametrize(
    ("name", "version", "penalty"),
    [
        ("low_var_kl", None, Penalty.K3_LOSS),
        ("k3", None, Penalty.K3_LOSS),
        ("mse", None, Penalty.K2_LOSS),
        ("k2", None, Penalty.K2_LOSS),
        ("kl", None, Penalty.K1_LOSS),
        ("abs", None, Penalty.ABS_LOSS),
        ("low_var_kl+", "0.8.0", Penalty.K3PLUS_LOSS),
        ("k1+", "0.8.0", Penalty.K2_LOSS),
    ],
)
def test_every_estimator_in_the_loss_has_its_gradient(
    name: str, version: str | None, penalty: Penalty, tmp_path: Path
) -> None:
    text = IN_LOSS + f"kl_loss_type: {name}}}}}\n"
    assert read(tmp_path, "verl", text, version).kl.penalty is penalty


def test_estimators_with_a_plus_are_refused_where_they_raise(tmp_path: Path) -> None:
    text = IN_LOSS + "kl_loss_type: low_var_kl+}}\n"
    assert "verl 0.7.0 raises" in refusal(tmp_path, "verl", text, "0.7.0")
    assert "verl 0.5.0 has no such estimator" in refusal(tmp_path, "verl", text, "0.5.0")


def test_in_the_reward_beta_is_raw_reward_and_the_controller_is_read(tmp_path: Path) -> None:
    text = (
        IN_REWARD + "kl_penalty: kl+, kl_ctrl: {type: adaptive, kl_coef: 0.2, target_kl: 0.25}}\n"
    )
    kl = read(tmp_path, "verl", text).kl
    assert (kl.penalty, kl.beta, kl.beta_in) == (Penalty.K1_REWARD, 0.2, "reward")
    assert (kl.target_token, kl.horizon) == (0.25, 10000)


def test_up_to_0_3_the_reward_pays_a_kl_unless_the_loss_does(tmp_path: Path) -> None:
    text = "algorithm: {adv_estimator: gae, kl_ctrl: {kl_coef: 0.005}}\n"
    assert read(tmp_path, "verl", text, "0.3.0").kl.penalty is Penalty.K1_REWARD
    found = read(tmp_path, "verl", text, "0.4.0")
    assert found.kl.penalty is None
    assert any("no KL at all" in words for words in found.warnings)
    both = "actor_rollout_ref: {actor: {use_kl_loss: true}}\nalgorithm: {adv_estimator: grpo}\n"
    assert read(tmp_path, "verl", both, "0.3.0").kl.penalty is Penalty.K3_LOSS


def test_a_coefficient_without_its_switch_is_no_kl(tmp_path: Path) -> None:
    text = "algorithm: {adv_estimator: grpo}\nactor_rollout_ref.actor.kl_loss_coef: 0.01\n"
    found = read(tmp_path, "verl", text)
    assert found.kl.penalty is None
    assert any("use_kl_loss is off" in words for words in found.warnings)


def test_both_switches_and_other_algorithms_are_refused(tmp_path: Path) -> None:
    both = IN_REWARD + "lam: 1}\nactor_rollout_ref.actor.use_kl_loss: true\n"
    assert "paid twice" in refusal(tmp_path, "verl", both)
    other = "algorithm: {adv_estimator: reinforce_plus_plus_baseline}\n"
    assert "the nearest is grpo or reinforce_plus_plus" in refusal(tmp_path, "verl", other)
    bad = IN_LOSS + "kl_loss_type: k9}}\n"
    assert "verl does not have 'k9'" in refusal(tmp_path, "verl", bad)


def test_the_controller_never_moves_the_coefficient_of_the_loss(tmp_path: Path) -> None:
    text = IN_LOSS + "kl_loss_coef: 0.1}}\nalgorithm.kl_ctrl.type: adaptive\n"
    found = read(tmp_path, "verl", text)
    assert found.kl.target_token is None
    assert any("never moves kl_loss_coef" in words for words in found.warnings)


def test_clip_ratio_alone_is_not_what_verl_clips_by(tmp_path: Path) -> None:
    text = IN_LOSS + "clip_ratio: 0.3}}\n"
    found = read(tmp_path, "verl", text)
    assert found.trainer["clip_ratio"] == 0.2
    assert any("verl uses clip_ratio_low" in words for words in found.warnings)
    assert read(tmp_path, "verl", text, "0.3.0").trainer["clip_ratio"] == 0.3


def test_divisions_aggregations_and_dual_clip(tmp_path: Path) -> None:
    text = (
        IN_LOSS
        + "loss_agg_mode: seq-mean-token-sum-norm, loss_scale_factor: 99, clip_ratio_c: 1e6}}\n"
    )
    text += "algorithm.norm_adv_by_std_in_grpo: false\n"
    found = read(tmp_path, "verl", text)
    assert found.trainer["algorithm"] == "dr-grpo"
    assert "aggregation" not in found.trainer  # Dr.GRPO's own
    assert "clip_ratio_max" not in found.trainer
    assert any("loss_scale_factor is 99" in words for words in found.warnings)
    mean = read(tmp_path, "verl", IN_LOSS + "loss_agg_mode: seq-mean-token-sum}}\n")
    assert mean.trainer["aggregation"] == "seq-mean-token-sum"


def test_a_step_that_minibatches_do_not_fill_is_refused(tmp_path: Path) -> None:
    text = IN_LOSS + "ppo_mini_batch_size: 96}}\ndata.train_batch_size: 256\n"
    assert "is no multiple of" in refusal(tmp_path, "verl", text)


def test_reinforce_pays_each_token_its_own_and_the_later_kl(tmp_path: Path) -> None:
    text = IN_REWARD.replace("gae", "reinforce_plus_plus") + "kl_ctrl: {kl_coef: 0.1}}\n"
    assert read(tmp_path, "verl", text).trainer["kl"] == {"credit": "reward-to-go"}
    rloo = IN_REWARD.replace("gae", "rloo") + "kl_ctrl: {kl_coef: 0.1}}\n"
    assert "kl" not in read(tmp_path, "verl", rloo).trainer

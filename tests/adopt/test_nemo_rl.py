from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import NEMO, read, refusal

from kltune.spec.penalty import Penalty

PLAIN = "grpo: {use_leave_one_out_baseline: false}\n"


@pytest.mark.parametrize(
    ("version", "kind", "penalty"),
    [
        ("0.7.0", "k3", Penalty.WK3_LOSS),
        ("0.7.0", "k1", Penalty.WK1_LOSS),
        ("0.6.0", "k3", Penalty.K3_LOSS),
        ("0.6.0", "k2", Penalty.K2_LOSS),
        ("0.6.0", "k1", Penalty.K1_LOSS),
    ],
)
def test_the_same_key_has_another_gradient_from_0_7_on(
    version: str, kind: str, penalty: Penalty, tmp_path: Path
) -> None:
    text = PLAIN + f"loss_fn: {{reference_policy_kl_type: {kind}}}\n"
    assert read(tmp_path, "nemo-rl", text, version).kl.penalty is penalty


def test_k2_of_the_new_releases_is_refused_with_the_way_out(tmp_path: Path) -> None:
    text = PLAIN + "loss_fn: {reference_policy_kl_type: k2}\n"
    assert "--from-version 0.6.0" in refusal(tmp_path, "nemo-rl", text)


def test_before_the_key_it_is_always_k3(tmp_path: Path) -> None:
    assert read(tmp_path, "nemo-rl", NEMO, "0.3.1").kl.penalty is Penalty.K3_LOSS


def test_a_kl_in_the_reward_of_grpo_is_no_kl_at_all(tmp_path: Path) -> None:
    found = read(tmp_path, "nemo-rl", PLAIN + "loss_fn: {use_kl_in_reward: true}\n")
    assert found.kl.penalty is None
    assert any("there is no KL" in words for words in found.warnings)


def test_baselines_are_told_apart(tmp_path: Path) -> None:
    def algorithm(words: str) -> str:
        return read(tmp_path, "nemo-rl", f"grpo: {{{words}}}\n").trainer["algorithm"]

    assert algorithm("normalize_rewards: true") == "grpo"
    assert algorithm("normalize_rewards: false") == "rloo"
    assert algorithm("normalize_rewards: false, use_leave_one_out_baseline: false") == "dr-grpo"
    # From 0.6.0 on the estimator's own key counts.
    assert algorithm("adv_estimator: {normalize_rewards: false}") == "rloo"
    plus = "adv_estimator: {name: reinforce_plus_plus, minus_baseline: false}"
    assert algorithm(plus) == "reinforce"


def test_what_kltune_has_no_words_for_is_refused_or_said(tmp_path: Path) -> None:
    plus = "grpo: {adv_estimator: {name: reinforce_plus_plus, minus_baseline: %s}}\n"
    assert "minus_baseline" in refusal(tmp_path, "nemo-rl", plus % "true")
    paid = plus % "false" + "loss_fn: {use_kl_in_reward: true}\n"
    assert "no reward-to-go" in refusal(tmp_path, "nemo-rl", paid)
    assert "grpo and reinforce_plus_plus" in refusal(
        tmp_path, "nemo-rl", "grpo: {adv_estimator: {name: gae}}\n"
    )
    found = read(tmp_path, "nemo-rl", "grpo: {normalize_rewards: true}\n")
    assert any("G / (G - 1)" in words for words in found.warnings)


def test_clamps_aggregation_clips_and_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, "nemo-rl", NEMO)
    assert (found.kl.beta, found.prompts, found.group) == (0.02, 8, 8)
    assert found.trainer["kl"] == {"clip": 10.0}
    assert found.trainer["max_new_tokens"] == 512  # ${policy.max_total_sequence_length}
    assert any(words.startswith("defaults: ") for words in found.warnings)
    text = (
        PLAIN
        + "loss_fn: {token_level_loss: false, kl_output_clamp_value: null, ratio_clip_max: 0.28}\n"
    )
    found = read(tmp_path, "nemo-rl", text)
    assert "kl" not in found.trainer
    assert found.trainer["aggregation"] == "seq-mean-token-mean"
    assert found.trainer["clip_ratio_high"] == 0.28

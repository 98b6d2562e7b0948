from __future__ import annotations

import pytest

from kltune.diagnose.names import bare, family, framework_of, known_names
from kltune.symptoms.curve import Quantity


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("kltune", ["kl/exact_token", "kl", "reward", "completions/mean_length"]),
        ("trl", ["kl", "reward", "completions/mean_length", "rewards/fmt/mean"]),
        ("trl", ["train/kl", "train/reward", "train/frac_reward_zero_std"]),
        ("trl", ["reward", "rewards/fmt/mean"]),
        ("trl-ppo", ["objective/kl", "policy/approxkl_avg"]),
        ("trl-legacy", ["objective/kl", "objective/kl_dist", "ppo/mean_scores"]),
        ("trl-online-dpo", ["objective/kl", "val/contain_eos_token", "objective/rlhf_reward"]),
        ("verl", ["actor/ppo_kl", "actor/kl_loss"]),
        ("verl", ["rollout_corr/kl", "step"]),
        ("openrlhf", ["train/kl", "train/response_length", "train/return"]),
        ("openrlhf", ["train/kl", "train/actor_lr"]),
        ("nemo-rl", ["train/kl_penalty", "train/reward"]),
        ("nemo-rl", ["train/gen_kl_error"]),
        ("open-instruct", ["objective/kl2_avg", "policy/clipfrac_avg"]),
        ("trlx", ["policy/sqrt_kl", "policy/approx_kl"]),
        ("unknown", ["kl", "reward"]),
        ("unknown", ["train/approx_kl", "train/clip_fraction"]),
    ],
)
def test_a_trainer_is_told_by_names_that_only_it_logs(framework: str, names: list[str]) -> None:
    assert framework_of(names) == framework


def test_all_of_trls_trainers_are_one_family() -> None:
    assert family("trl-legacy") == family("trl") == "trl"
    assert family("open-instruct") == "open-instruct"


def test_a_train_prefix_is_no_part_of_the_name() -> None:
    assert bare("train/kl") == "kl"
    assert bare("eval/kl") == "eval/kl"


def test_the_best_source_of_a_quantity_comes_first() -> None:
    names = ["objective/kl0_avg", "objective/kl1_avg", "objective/kl2_avg", "objective/kl3_avg"]
    kl = [k for k in known_names(names, "open-instruct") if k.quantity is Quantity.KL_TOKEN]
    assert [k.name for k in kl] == [
        "objective/kl2_avg",
        "objective/kl0_avg",
        "objective/kl1_avg",
        "objective/kl3_avg",
    ]


def test_a_foreign_update_kl_is_one_in_any_framework() -> None:
    found = known_names(["kl", "approx_kl", "my_thing"], "trl")
    assert [(k.name, k.quantity) for k in found] == [
        ("kl", Quantity.KL_TOKEN),
        ("approx_kl", Quantity.UPDATE_KL_TOKEN),
    ]


def test_an_evaluations_kl_is_not_the_trainings() -> None:
    found = known_names(["eval/kl", "eval_kl", "train/kl"], "trl")
    assert [k.name for k in found if k.is_kl] == ["train/kl"]


def test_a_pattern_is_for_what_no_line_before_it_named() -> None:
    found = [(one.name, one.quantity) for one in known_names(["rollout_corr/kl"], "verl")]
    assert found == [("rollout_corr/kl", Quantity.SAMPLER_KL_TOKEN)]

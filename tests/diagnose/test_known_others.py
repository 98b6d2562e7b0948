from __future__ import annotations

import pytest

from kltune.diagnose.names import known_names
from kltune.symptoms.curve import Quantity as Q  # noqa: N817 - one letter keeps the table readable


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("kltune", {"train/proxy_mean": Q.PROXY, "eval/gold": Q.GOLD, "ctrl/beta": Q.BETA}),
        ("trl", {"reward": Q.PROXY, "completion_length": Q.LENGTH, "loss": Q.LOSS}),
        ("trl", {"train/reward": Q.PROXY, "train/clip_ratio/region_mean": Q.CLIP_FRAC}),
        ("trl-ppo", {"objective/scores": Q.PROXY, "lr": Q.LEARNING_RATE}),
        ("trl-legacy", {"env/reward_mean": Q.PROXY, "objective/kl_coef": Q.BETA}),
        ("verl", {"critic/score/mean": Q.PROXY, "response_length/clip_ratio": Q.TRUNCATED}),
        ("verl", {"actor/kl_coef": Q.BETA, "critic/vf_explained_var": Q.EXPLAINED_VARIANCE}),
        ("openrlhf", {"train/reward": Q.PROXY, "train/response_length": Q.LENGTH}),
        ("nemo-rl", {"train/approx_entropy": Q.ENTROPY, "validation/accuracy": Q.GOLD}),
        ("open-instruct", {"scores": Q.PROXY, "optim/grad_norm": Q.GRAD_NORM}),
        ("trlx", {"kl_ctl_value": Q.BETA, "exp_scores/mean": Q.PROXY}),
    ],
)
def test_names_mean_what_their_framework_says(framework: str, names: dict[str, Q]) -> None:
    found = {known.name: known.quantity for known in known_names(names, framework)}
    assert found == names


def test_verls_validation_score_is_a_gold_that_is_not_certain() -> None:
    names = [
        "val-core/gsm8k/acc/best@4/mean",
        "val-core/gsm8k/acc/mean@4",
        "val-core/gsm8k/reward/mean@4",
    ]
    found = [known for known in known_names(names, "verl") if known.quantity is Q.GOLD]
    assert [known.name for known in found] == names[1:]
    assert not any(known.is_certain for known in found)


def test_verls_name_as_mlflow_takes_it_is_known_too() -> None:
    (found,) = known_names(["val-core/gsm8k/acc/mean_at_4"], "verl")
    assert found.quantity is Q.GOLD


def test_the_training_reward_on_held_out_prompts_is_no_gold() -> None:
    (found,) = known_names(["eval_reward"], "trl")
    assert found.quantity is None
    assert "no gold" in found.why


@pytest.mark.parametrize("held_out", ["eval_rewards/gold/mean", "eval/rewards/gold/mean"])
def test_gold_of_trls_evaluation_counts_before_that_of_its_training(held_out: str) -> None:
    names = ["rewards/gold/mean", held_out, held_out.replace("mean", "std")]
    found = {known.name: known for known in known_names(names, "trl")}
    assert [name for name, known in found.items() if known.quantity is Q.GOLD] == [
        held_out,
        "rewards/gold/mean",
    ]
    assert "evaluation's prompts" in found[held_out].why
    assert "standard error" in found[names[2]].why


def test_another_reward_function_on_held_out_prompts_is_no_gold() -> None:
    (found,) = known_names(["eval_rewards/accuracy/mean"], "trl")
    assert found.quantity is None
    assert "no gold" in found.why

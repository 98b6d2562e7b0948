from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import TRL, put, read, refusal

from kltune.adopt.given import Given
from kltune.adopt.trl import builder_of
from kltune.spec.penalty import Penalty


def call(words: str, builder: str = "GRPOConfig") -> str:
    return f"{builder}({words})\n"


@pytest.mark.parametrize(
    ("version", "words", "penalty"),
    [
        ("1.16.0", "beta=.1", Penalty.WK3_LOSS),
        ("1.9.0", "beta=.1", Penalty.K3_LOSS),
        ("1.9.0", "beta=.1, use_bias_correction_kl=True", Penalty.WK3_LOSS),
        ("1.16.0", "beta=.1, use_bias_correction_kl=False", Penalty.K3_LOSS),
        ("0.22.2", "beta=.1", Penalty.K3_LOSS),
        ("1.16.0", "", None),
        ("0.18.2", "", Penalty.K3_LOSS),  # its default is .04
    ],
)
def test_the_gradient_and_the_default_beta_are_the_releases(
    version: str, words: str, penalty: Penalty | None, tmp_path: Path
) -> None:
    assert read(tmp_path, "trl", call(words), version).kl.penalty is penalty


def test_sizes_are_completions_and_one_device_is_assumed_aloud(tmp_path: Path) -> None:
    found = read(tmp_path, "trl", TRL)
    assert (found.prompts, found.group, found.trainer["minibatches"]) == (2, 8, 1)
    assert any("one device is assumed" in words for words in found.warnings)
    text = call(
        "per_device_train_batch_size=8, gradient_accumulation_steps=2, generation_batch_size=64"
    )
    found = read(tmp_path, "trl", text)
    assert (found.rows, found.trainer["minibatches"]) == (64, 4)
    text = call("per_device_train_batch_size=8, steps_per_generation=4")
    found = read(tmp_path, "trl", text)
    assert (found.rows, found.trainer["minibatches"]) == (32, 4)
    assert "no multiple of num_generations" in refusal(tmp_path, "trl", call("num_generations=3"))


@pytest.mark.parametrize(
    ("loss", "aggregation"),
    [
        ("grpo", "seq-mean-token-mean"),
        ("dapo", None),
        ("dr_grpo", "constant"),
        ("luspo", "seq-mean-token-sum"),
    ],
)
def test_every_loss_type_is_an_aggregation(
    loss: str, aggregation: str | None, tmp_path: Path
) -> None:
    found = read(tmp_path, "trl", call(f"beta=.1, loss_type={loss!r}"))
    assert found.trainer.get("aggregation") == aggregation


def test_losses_and_ratios_that_kltune_does_not_have_are_said(tmp_path: Path) -> None:
    text = call("beta=.1, loss_type='cispo', importance_sampling_level='sequence', top_p=.9")
    warnings = " ".join(read(tmp_path, "trl", text).warnings)
    for words in ("loss_type cispo", "geometric mean", "top_p"):
        assert words in warnings
    assert "loss_type: kltune knows" in refusal(tmp_path, "trl", call("loss_type='new'"))


def test_scale_rewards_is_read_as_word_and_as_truth_value(tmp_path: Path) -> None:
    found = {
        words: read(tmp_path, "trl", call(f"scale_rewards={words}")).trainer["algorithm"]
        for words in ("True", "False", "'group'", "'none'", "'batch'")
    }
    assert list(found.values()) == ["grpo", "dr-grpo", "grpo", "dr-grpo", "grpo"]
    assert "scale_rewards must be" in refusal(tmp_path, "trl", call("scale_rewards='x'"))
    assert "is a, no plain value" in refusal(tmp_path, "trl", call("scale_rewards=a"))


def test_the_releases_with_inverted_scale_rewards_are_refused(tmp_path: Path) -> None:
    # They have no list of their own: the number that was asked for counts.
    assert "inverted in TRL 0.22.0" in refusal(tmp_path, "trl", call("beta=.1"), "0.22.0")


def test_rloo_pays_raw_reward(tmp_path: Path) -> None:
    text = call("beta=.05, reward_clip_range=(-2., 2.), normalize_advantages=True", "RLOOConfig")
    found = read(tmp_path, "trl", text)
    assert (found.kl.penalty, found.kl.beta_in) == (Penalty.K1_REWARD, "reward")
    assert (found.trainer["algorithm"], found.trainer["importance"]) == ("rloo", "sequence")
    assert found.trainer["reward"] == {"clip": 2.0}
    assert any(words.startswith("normalize_advantages") for words in found.warnings)
    assert "another trainer" in refusal(tmp_path, "trl", text, "0.18.2")


def test_whose_keys_a_file_without_a_class_has_is_told_by_the_keys(tmp_path: Path) -> None:
    assert builder_of(Given("x", {"beta": 1})) == "GRPOConfig"
    assert builder_of(Given("x", {"beta": 1, "normalize_advantages": False})) == "RLOOConfig"
    assert (
        builder_of(Given("x", {"beta": 1, "loss_type": "grpo", "reward_clip_range": 1}))
        == "GRPOConfig"
    )
    found = read(tmp_path, "trl", '{"beta": 0.1}', name="training_args.json")
    assert any("read as GRPOConfig's" in words for words in found.warnings)


def test_a_reference_that_follows_is_in_steps(tmp_path: Path) -> None:
    text = call(
        "beta=.1, sync_ref_model=True, ref_model_sync_steps=8, num_iterations=2, max_steps=100"
    )
    found = read(tmp_path, "trl", text)
    assert found.trainer["reference"] == {"every": 4, "mixture": 0.6}
    assert found.steps == 50
    assert put(tmp_path, "x.py", text).exists()

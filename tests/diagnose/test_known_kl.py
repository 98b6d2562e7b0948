"""The naming table of kl-reference.md §4, row by row."""

from __future__ import annotations

import pytest

from kltune.diagnose.assemble import to_run_log
from kltune.diagnose.sources.raw import RawRun
from kltune.symptoms.curve import Quantity

_TOKEN, _SEQ = "nats/token", "nats/sequence"
_COMPANY = {
    "trl": {"completions/mean_length": 50.0},
    "trl-ppo": {"policy/approxkl_avg": 0.1, "objective/scores": 1.0},
    "trl-legacy": {"ppo/mean_scores": 1.0, "objective/kl_dist": 1.0},
    "trl-online-dpo": {"val/contain_eos_token": 1.0},
    "verl": {"critic/score/mean": 1.0},
    "openrlhf": {"train/actor_lr": 1e-6},
    "nemo-rl": {"train/mean_gen_tokens_per_sample": 50.0},
    "open-instruct": {"val/sequence_lengths": 50.0},
    "trlx": {"kl_ctl_value": 0.1},
    "sb3": {"train/clip_fraction": 0.1},
}
"""Something else that the framework logs, by which it is told."""


def _read(framework: str, name: str, values: list[float] | None = None):
    numbers = values or [0.1, 0.2, 0.3]
    rows = [(i + 1, {**_COMPANY[framework], name: v}) for i, v in enumerate(numbers)]
    return to_run_log(RawRun("x", "test", tuple(rows)), None, None)


@pytest.mark.parametrize(
    ("framework", "name", "quantity", "unit", "estimator"),
    [
        ("trl", "kl", Quantity.KL_TOKEN, _TOKEN, "k3"),
        ("trl", "train/kl", Quantity.KL_TOKEN, _TOKEN, "k3"),
        ("trl-ppo", "objective/kl", Quantity.KL_SEQ, _SEQ, "k1"),
        ("trl-legacy", "objective/kl", Quantity.KL_SEQ, _SEQ, "k1"),
        ("trl-online-dpo", "objective/kl", Quantity.KL_SEQ, _SEQ, "k1"),
        ("verl", "actor/kl_loss", Quantity.KL_TOKEN, _TOKEN, "k3"),
        ("verl", "actor/reward_kl_penalty", Quantity.KL_TOKEN, _TOKEN, "k1"),
        ("verl", "critic/kl", Quantity.KL_TOKEN, _TOKEN, "k1"),
        ("openrlhf", "train/kl", Quantity.KL_TOKEN, _TOKEN, ""),
        ("nemo-rl", "train/kl_penalty", Quantity.KL_TOKEN, _TOKEN, "k3"),
        ("open-instruct", "objective/kl0_avg", Quantity.KL_TOKEN, _TOKEN, "k1"),
        ("open-instruct", "objective/kl1_avg", Quantity.KL_TOKEN, _TOKEN, "k2"),
        ("open-instruct", "objective/kl2_avg", Quantity.KL_TOKEN, _TOKEN, "k3"),
        ("open-instruct", "objective/kl3_avg", Quantity.KL_TOKEN, _TOKEN, "weighted k1"),
        ("trlx", "policy/sqrt_kl", Quantity.KL_SEQ, _SEQ, "k3 with the ratio inverted"),
        ("trlx", "policy/kl_per_token", Quantity.KL_TOKEN, _TOKEN, "k3 with the ratio inverted"),
    ],
)
def test_a_reference_kl_has_the_unit_that_its_framework_gives_it(
    framework: str, name: str, quantity: Quantity, unit: str, estimator: str
) -> None:
    run = _read(framework, name)
    reading = run.readings[quantity]
    assert (reading.name, reading.unit, reading.estimator) == (name, unit, estimator)
    assert reading.why
    # verl's mode decides, and the log does not show it.
    assert reading.is_certain is (name != "actor/kl_loss")


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("verl", "actor/ppo_kl"),
        ("trl-ppo", "policy/approxkl_avg"),
        ("trl-legacy", "ppo/policy/policykl"),
        ("trl-legacy", "policy/approxkl"),
        ("openrlhf", "train/ppo_kl"),
        ("trlx", "policy/approx_kl"),
        ("sb3", "train/approx_kl"),
        ("trl", "approx_kl"),
    ],
)
def test_an_update_kl_is_never_a_reference_kl(framework: str, name: str) -> None:
    run = _read(framework, name)
    assert Quantity.KL_TOKEN not in run.readings
    assert Quantity.KL_SEQ not in run.readings
    assert run.readings[Quantity.UPDATE_KL_TOKEN].name == name


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("verl", "rollout_corr/kl"),
        ("verl", "rollout_corr/k3_kl"),
        ("openrlhf", "train/vllm_kl"),
        ("nemo-rl", "train/gen_kl_error"),
    ],
)
def test_the_gap_between_engine_and_trainer_is_a_distance_of_its_own(
    framework: str, name: str
) -> None:
    run = _read(framework, name)
    assert Quantity.KL_TOKEN not in run.readings
    assert run.readings[Quantity.SAMPLER_KL_TOKEN].name == name


def test_trlx_square_roots_are_undone() -> None:
    run = _read("trlx", "policy/sqrt_kl", [1.0, 2.0, 3.0])
    assert run.curve.values[Quantity.KL_SEQ] == (1.0, 4.0, 9.0)


def test_open_instructs_loss_kl_has_beta_in_it() -> None:
    run = _read("open-instruct", "loss/kl_avg")
    assert Quantity.KL_TOKEN not in run.readings
    assert run.readings[Quantity.LOSS_KL].name == "loss/kl_avg"


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("trl-ppo", "objective/non_score_reward"),
        ("trl-ppo", "objective/rlhf_reward"),
        ("open-instruct", "debug/vllm_local_reverse_kl"),
        ("nemo-rl", "train/policy_kl_error"),
    ],
)
def test_what_is_no_kl_is_left_out_with_the_reason(framework: str, name: str) -> None:
    run = _read(framework, name)
    assert Quantity.KL_TOKEN not in run.readings
    assert any(note.startswith(f"{name} was left out: ") for note in run.notes)


def test_openrlhfs_logprobs_diff_is_its_k1() -> None:
    run = _read("openrlhf", "train/logprobs_diff")
    assert run.readings[Quantity.K1_TOKEN].name == "train/logprobs_diff"

from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import VERL_GRPO, keys, read, refusal

from kltune.adopt.reading import bound, high_clip, minibatches
from kltune.errors import SpecError
from kltune.spec.trial import BetaUnit, ControllerKind

GROUP_NORM = (
    "python3 -m openrlhf.cli.train_ppo_ray --algo.advantage.estimator {name} --algo.kl.init_coef 0.1 "
    "--rollout.batch_size 4 --rollout.n_samples_per_prompt 4 --train.batch_size 16 --rollout.max_new_tokens 9\n"
)


def test_a_winner_is_native_and_was_never_run(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", VERL_GRPO, name="run.sh").winner(None, 24.0)
    assert (found.beta_unit, found.setting.beta) == (BetaUnit.NATIVE, 0.001)
    assert found.setting.controller is ControllerKind.FIXED
    assert (found.stop, found.gold, found.kl_guard) == (None, None, None)
    assert found.source.read_from == "verl 0.9.0"
    assert found.coefficient(0.001) == 0.001


def test_a_price_in_normalised_units_is_raw_reward_by_sigma(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", GROUP_NORM.format(name="group_norm"))
    assert found.winner(0.5, 9).setting.beta == pytest.approx(0.05)
    with pytest.raises(SpecError, match="--sigma"):
        found.winner(None, 9)


def test_dr_grpos_price_is_that_of_a_mean_that_holds_its_own_reward(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", GROUP_NORM.format(name="dr_grpo"))
    winner = found.winner(None, 9)
    assert winner.setting.beta == pytest.approx(0.1 * 4 / 3)
    assert winner.coefficient(winner.setting.beta) == pytest.approx(0.1)


def test_one_completion_a_prompt_becomes_one_group_of_all(tmp_path: Path) -> None:
    text = "algorithm: {adv_estimator: gae}\ndata: {train_batch_size: 12}\n"
    text += "actor_rollout_ref.actor.ppo_mini_batch_size: 4\n"
    spec = read(tmp_path, "verl", text).trainer_spec()
    assert (spec.rows, spec.prompts, spec.minibatches) == (12, 1, 3)


def test_a_trainer_that_kltune_does_not_have_is_refused_by_the_files_key(tmp_path: Path) -> None:
    text = VERL_GRPO.replace("rollout.n=8", "rollout.n=8 actor_rollout_ref.actor.clip_ratio_low=-1")
    found = read(tmp_path, "verl", text, name="run.sh")
    with pytest.raises(SpecError, match=r"clip_ratio_low: Input should be greater than 0"):
        found.trainer_spec()


def test_sizes_below_one_are_refused(tmp_path: Path) -> None:
    text = "algorithm: {adv_estimator: grpo}\ndata: {train_batch_size: 0}\n"
    assert "data.train_batch_size must be a number above 0" in refusal(tmp_path, "verl", text)


def test_minibatches_must_fill_the_step() -> None:
    found = keys("verl", "0.9.0")
    assert minibatches(found, 64, 16, ("a", "b")) == 4
    for part in (0, 48):
        with pytest.raises(SpecError, match="is no multiple of b"):
            minibatches(found, 64, part, ("a", "b"))


def test_clips_that_say_nothing_are_none() -> None:
    assert (high_clip(0.2, 0.2), high_clip(0.2, None), high_clip(0.2, 0.3)) == (None, None, 0.3)
    assert (bound(3.0, 0.2), bound(1e6, 0.2), bound(1.1, 0.2), bound(None, 0.2)) == (
        3.0,
        None,
        None,
        None,
    )

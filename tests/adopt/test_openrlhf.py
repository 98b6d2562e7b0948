from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import OPENRLHF_NEW, OPENRLHF_OLD, read, refusal

from kltune.spec.penalty import Penalty

SIZES = "--rollout.batch_size 8 --n x --rollout.n_samples_per_prompt 4 --train.batch_size 32 --rollout.max_new_tokens 16 "


def run(words: str) -> str:
    return f"python3 -m openrlhf.cli.train_ppo_ray {SIZES}{words}\n"


def test_both_generations_of_names_say_the_same(tmp_path: Path) -> None:
    old, new = read(tmp_path, "openrlhf", OPENRLHF_OLD), read(tmp_path, "openrlhf", OPENRLHF_NEW)
    assert (old.version, new.version) == ("0.9.0", "0.11.0")
    assert old.kl == new.kl
    assert old.trainer == new.trainer
    assert (old.prompts, old.group) == (new.prompts, new.group) == (32, 4)
    assert old.unknown == new.unknown == ()


def test_old_names_in_a_new_release_are_read_and_named(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", OPENRLHF_OLD, "0.11.0")
    assert found.kl.beta == 0.02


@pytest.mark.parametrize(
    ("estimator", "unit"),
    [
        ("group_norm", "advantage"),
        ("dr_grpo", "advantage"),
        ("rloo", "reward"),
        ("gae", "reward"),
        ("reinforce", "reward"),
    ],
)
def test_the_unit_in_the_reward_follows_from_what_was_done_before(
    estimator: str, unit: str, tmp_path: Path
) -> None:
    text = run(f"--algo.advantage.estimator {estimator} --algo.kl.init_coef .1")
    found = read(tmp_path, "openrlhf", text)
    assert (found.kl.penalty, found.kl.beta_in) == (Penalty.K1_REWARD, unit)


@pytest.mark.parametrize(
    ("words", "penalty"),
    [
        ("--algo.kl.use_loss --algo.kl.estimator k2", Penalty.K2_LOSS),
        ("--algo.kl.use_loss --algo.kl.estimator k3", Penalty.K3_LOSS),
        ("--algo.kl.use_loss", Penalty.K1_LOSS),
        ("--algo.kl.estimator k3", Penalty.K3_REWARD),
        ("--algo.kl.init_coef 0", None),
    ],
)
def test_estimator_and_place(words: str, penalty: Penalty | None, tmp_path: Path) -> None:
    text = run(f"--algo.advantage.estimator group_norm {words}")
    assert read(tmp_path, "openrlhf", text).kl.penalty is penalty


def test_a_target_switches_the_controller_on(tmp_path: Path) -> None:
    kl = read(tmp_path, "openrlhf", run("--algo.kl.target 0.2 --algo.kl.horizon 640")).kl
    assert (kl.target_token, kl.horizon, kl.beta) == (0.2, 640, 0.01)
    assert read(tmp_path, "openrlhf", run("--algo.kl.horizon 640")).kl.horizon is None


def test_a_learning_rate_that_is_an_expression_by_default_is_the_actors(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", run("--algo.advantage.estimator gae"))
    assert found.trainer["learning_rate"] == 1e-6
    assert found.trainer["critic"]["learning_rate"] == 9e-6


def test_the_limit_of_a_completion_is_looked_for_in_its_places(tmp_path: Path) -> None:
    short = run("--data.max_len 100").replace("--rollout.max_new_tokens 16", "")
    found = read(tmp_path, "openrlhf", short)
    assert found.trainer["max_new_tokens"] == 100
    assert any("prompt included" in words for words in found.warnings)


def test_what_kltune_has_no_words_for_is_refused_or_said(tmp_path: Path) -> None:
    text = run("--algo.advantage.estimator reinforce_baseline")
    assert "the nearest are group_norm and reinforce" in refusal(tmp_path, "openrlhf", text)
    text = run("--algo.kl.estimator k9 --algo.kl.use_loss")
    assert "OpenRLHF has k1, k2 and k3" in refusal(tmp_path, "openrlhf", text)
    assert "must be two numbers" in refusal(
        tmp_path, "openrlhf", run("--actor.eps_clip_low_high .2")
    )
    found = read(tmp_path, "openrlhf", run("--actor.policy_loss_type gspo --rollout.top_p .9"))
    assert any("gspo" in words for words in found.warnings)
    assert any("top_p" in words for words in found.warnings)
    assert any("lr_scheduler" in words for words in found.warnings)
    assert found.unknown == ("--n",)


def test_both_clips_come_from_one_flag(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", run("--actor.eps_clip_low_high 0.1 0.3 --actor.dual_clip 4"))
    clips = [found.trainer[f"clip_ratio{end}"] for end in ("", "_high", "_max")]
    assert clips == [0.1, 0.3, 4]

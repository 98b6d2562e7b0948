from __future__ import annotations

from typing import Any

import pytest
from export_case import SIGMA_R, adaptive, target, winner
from ruamel.yaml import YAML

from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.releases import listed_versions
from kltune.export.setting import Winner

KIND = "loss_fn.reference_policy_kl_type"


def export(found: Winner, version: str | None = None, **sizes: Any) -> Exported:
    return export_nemo_rl(found, target(found, "nemo-rl", version, **sizes))


@pytest.mark.parametrize("version", listed_versions("nemo-rl"))
def test_every_key_is_one_of_the_release(version: str) -> None:
    listed = target(winner(), "nemo-rl", version).keys.defaults
    penalty = "k2-loss" if version == "0.7.0" else "k3-loss"
    for found in (
        winner(penalty),
        winner(None, beta=0.0),
        winner(penalty, trainer={"algorithm": "rloo"}),
    ):
        for key in export(found, version).keys:
            assert key.name in listed
            assert key.comment


@pytest.mark.parametrize(
    ("penalty", "version", "estimator"),
    [
        ("k2-loss", "0.7.0", "k3"),
        ("wk3-loss", "0.7.0", "k3"),
        ("k2-loss", "0.6.0", "k2"),
        ("k2-loss", "0.5.0", "k2"),
        ("k3-loss", "0.6.0", "k3"),
    ],
)
def test_the_estimator_has_the_studied_gradient_in_that_release(
    penalty: str, version: str, estimator: str
) -> None:
    found = export(winner(penalty), version).values
    assert found[KIND] == estimator
    assert found["loss_fn.reference_policy_kl_penalty"] == pytest.approx(0.1 / SIGMA_R)


def test_before_0_5_0_there_is_k3_alone() -> None:
    assert KIND not in export(winner("k3-loss"), "0.4.0").values
    with pytest.raises(SpecError, match=r"knows k3 alone.*--version 0\.5\.0"):
        export(winner("k2-loss"), "0.4.0")


@pytest.mark.parametrize(
    ("changes", "version", "problem"),
    [
        (
            {"penalty": "k3-loss"},
            "0.7.0",
            r"from 0\.7\.0 on NeMo-RL's k3 has the reverse one.*0\.6\.0",
        ),
        ({"penalty": "k1-reward"}, None, "switches the KL of the loss off.*--to verl"),
        ({"penalty": "jeffreys-loss"}, None, "no setting of NeMo-RL"),
        ({"trainer": {"algorithm": "ppo"}}, None, "GRPO configuration only"),
        ({"trainer": {"epochs": 2}}, None, "passes once over a rollout"),
        ({"trainer": {"algorithm": "reinforce"}}, "0.5.0", r"no REINFORCE\+\+"),
    ],
)
def test_what_it_can_not_do_is_refused(
    changes: dict[str, Any], version: str | None, problem: str
) -> None:
    with pytest.raises(SpecError, match=problem):
        export(winner(**changes), version)


def test_use_kl_in_reward_is_always_off() -> None:
    assert export(winner()).values["loss_fn.use_kl_in_reward"] is False
    assert export(winner("k2-loss"), "0.6.0").values["loss_fn.use_kl_in_reward"] is False


@pytest.mark.parametrize(
    ("algorithm", "is_divided", "leaves_out"),
    [("grpo", True, False), ("dr-grpo", False, False), ("rloo", False, True)],
)
def test_the_baseline_is_the_studys_and_not_the_recipes(
    algorithm: str, is_divided: bool, leaves_out: bool
) -> None:
    found = export(winner(trainer={"algorithm": algorithm})).values
    assert found["grpo.normalize_rewards"] is is_divided
    assert found["grpo.use_leave_one_out_baseline"] is leaves_out


def test_reinforce_is_its_own_estimator() -> None:
    found = export(winner(trainer={"algorithm": "reinforce"})).values
    assert found["grpo.adv_estimator.name"] == "reinforce_plus_plus"
    assert found["grpo.adv_estimator.minus_baseline"] is False


def test_clamps_are_the_studys_own() -> None:
    free = export(winner()).values
    assert (free["loss_fn.kl_input_clamp_value"], free["loss_fn.kl_output_clamp_value"]) == (
        None,
        None,
    )
    clipped = export(winner(trainer={"kl": {"clip": 5.0}})).values
    assert clipped["loss_fn.kl_output_clamp_value"] == 5.0


def test_several_updates_weigh_against_the_sampling_policy() -> None:
    name = "loss_fn.use_on_policy_kl_approximation"
    assert export(winner()).values[name] is False
    assert export(winner(trainer={"minibatches": 2})).values[name] is True


def test_what_differs_is_warned_of() -> None:
    trainer = {
        "algorithm": "dr-grpo",
        "entropy_bonus": 0.01,
        "reference": {"every": 5},
    }
    text = "\n".join(export(winner(trainer=trainer)).warnings)
    for part in ("times a constant", "has none; it is left out", "stays the start"):
        assert part in text
    held = export(adaptive(penalty="k2-loss"))
    assert any("no controller that moves the coefficient" in line for line in held.warnings)
    old = export(winner("k3-loss"), "0.3.1")
    assert any("with n, not n - 1: advantages are larger by 1.07" in line for line in old.warnings)
    assert not any("n - 1" in line for line in export(winner("k3-loss"), "0.4.0").warnings)


def test_sizes_and_the_file() -> None:
    found = export(winner(trainer={"minibatches": 4}), batch=512, group=16)
    tree = YAML(typ="safe").load(found.text)
    assert tree["grpo"]["num_prompts_per_step"] == 32
    assert tree["policy"]["train_global_batch_size"] == 128
    assert "max_num_steps" not in tree["grpo"]
    with pytest.raises(SpecError, match="can't be cut into 3"):
        export(winner(trainer={"prompts": 6, "minibatches": 3}), batch=64)

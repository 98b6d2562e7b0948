from __future__ import annotations

from typing import Any

import pytest
from export_case import SIGMA_R, adaptive, target, winner
from ruamel.yaml import YAML

from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.releases import listed_versions
from kltune.export.setting import Winner
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl
from kltune.spec.trial import BetaUnit

ACTOR = "actor_rollout_ref.actor"


def export(found: Winner, version: str | None = None, **sizes: Any) -> Exported:
    return export_verl(found, target(found, "verl", version, **sizes))


@pytest.mark.parametrize("version", listed_versions("verl"))
@pytest.mark.parametrize("penalty", ["k1-reward", "k2-loss", "k3-loss", None])
def test_every_key_is_one_of_the_release_and_has_its_type(
    version: str, penalty: str | None
) -> None:
    found = export(winner(penalty, beta=0.1 if penalty else 0.0), version)
    listed = target(winner(), "verl", version).keys.defaults
    for key in found.keys:
        default = listed[key.name]
        assert isinstance(default, bool) is isinstance(key.value, bool) or default is None, key
        assert isinstance(default, str) is isinstance(key.value, str) or default is None, key
        assert key.comment


def test_the_yaml_holds_the_same_as_the_overrides() -> None:
    found = export(adaptive())
    tree = YAML(typ="safe").load(found.text)
    assert tree["defaults"] == ["ppo_trainer", "_self_"]
    assert "defaults" not in YAML(typ="safe").load(export(adaptive(), "0.4.0").text)
    for name, value in found.values.items():
        place: Any = tree
        for part in name.split("."):
            place = place[part]
        assert place == value, name
        assert f"#   {name}=" in found.text


@pytest.mark.parametrize(
    ("algorithm", "estimator", "is_divided"),
    [
        ("grpo", "grpo", True),
        ("dr-grpo", "grpo", False),
        ("rloo", "rloo", None),
        ("reinforce", "reinforce_plus_plus", None),
        ("ppo", "gae", None),
    ],
)
def test_each_algorithm_has_its_estimator(
    algorithm: str, estimator: str, is_divided: bool | None
) -> None:
    found = export(winner("k1-reward", trainer={"algorithm": algorithm}))
    assert found.values["algorithm.adv_estimator"] == estimator
    assert found.values.get("algorithm.norm_adv_by_std_in_grpo") is is_divided
    assert any(key.name == "critic.optim.lr" for key in found.keys) is (algorithm == "ppo")


def test_all_three_clips_are_set_and_the_dual_clip_is_out_of_reach() -> None:
    found = export(winner(trainer={"clip_ratio": 0.1, "clip_ratio_high": 0.28})).values
    clips = [found[f"{ACTOR}.clip_ratio{end}"] for end in ("", "_low", "_high", "_c")]
    assert clips == [0.1, 0.1, 0.28, 1e6]
    assert export(winner(trainer={"clip_ratio_max": 3.0})).values[f"{ACTOR}.clip_ratio_c"] == 3.0
    old = export(winner(trainer={"clip_ratio_high": 0.28}), "0.3.0")
    assert any("one clip" in line for line in old.warnings)


def test_dr_grpos_constant_is_the_targets_length_limit() -> None:
    dr = winner(trainer={"algorithm": "dr-grpo"})
    found = export(dr, mean_tokens=300.0, max_new_tokens=1024)
    assert found.values[f"{ACTOR}.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert found.values[f"{ACTOR}.loss_scale_factor"] == 1024
    assert any("does not divide" in line for line in export(dr, "0.7.0").warnings)
    assert not any("does not divide" in line for line in export(dr, "0.7.1").warnings)
    with pytest.raises(SpecError, match=r"always divides .*--version 0\.4\.0"):
        export(dr, "0.3.0")


@pytest.mark.parametrize(("version", "is_per_micro_batch"), [("0.7.1", True), ("0.8.0", False)])
def test_means_per_micro_batch_are_warned_of(version: str, is_per_micro_batch: bool) -> None:
    warnings = export(winner(), version).warnings
    assert any("micro-batch" in line for line in warnings) is is_per_micro_batch


def test_sizes_are_given_in_prompts() -> None:
    found = export(winner(trainer={"minibatches": 4}), batch=8192, group=8).values
    assert found["data.train_batch_size"] == 1024
    assert found[f"{ACTOR}.ppo_mini_batch_size"] == 256
    assert found["actor_rollout_ref.rollout.n"] == 8
    assert f"{ACTOR}.optim.lr" not in found
    with pytest.raises(SpecError, match="by prompts, and 8 of them"):
        export(winner(trainer={"minibatches": 16}))


def test_what_verl_can_not_do_is_refused_or_warned_of() -> None:
    with pytest.raises(SpecError, match="no setting of verl with the gradient of jeffreys-loss"):
        export(winner("jeffreys-loss"))
    trainer = {
        "algorithm": "ppo",
        "critic": {"whiten": False},
        "reference": {"every": 5},
    }
    text = "\n".join(export(winner("k1-reward", trainer=trainer)).warnings)
    assert "always whitens" in text
    assert "stays the start" in text
    several = winner(
        "k1-reward",
        trainer={
            "algorithm": "rloo",
            "importance": "sequence",
            "epochs": 2,
            "kl": {"credit": "sequence"},
        },
    )
    assert any("per token" in line for line in export(several).warnings)


@pytest.mark.parametrize(
    ("penalty", "trainer"), [("k2-loss", {}), ("k3-loss", {}), ("k1-reward", {"algorithm": "rloo"})]
)
def test_a_round_trip_over_verl_keeps_reward_over_beta(
    penalty: str, trainer: dict[str, Any]
) -> None:
    """The setting, in verl's keys, read back as one of verl's, and to TRL: as if it had gone there at once."""
    found = winner(penalty, beta=0.1, trainer=trainer)
    values = export(found).values
    if penalty == "k1-reward":
        back = winner(penalty, beta=values["algorithm.kl_ctrl.kl_coef"], trainer=trainer)
        raw = back.price(back.setting.beta)
    else:
        coefficient = values[f"{ACTOR}.kl_loss_coef"]
        back = winner(penalty, beta=coefficient, trainer=trainer, beta_unit=BetaUnit.NATIVE)
        raw = coefficient * SIGMA_R
    assert raw == pytest.approx(0.1)
    straight = export_trl(found, target(found, "trl")).values
    assert export_trl(back, target(back, "trl")).values == straight


@pytest.mark.parametrize("sizes", [{}, {"batch": 128}])
def test_learning_rate_and_steps_are_never_set_and_it_says_why(sizes: dict[str, int]) -> None:
    found = export(winner("k1-reward", trainer={"algorithm": "ppo"}), **sizes)
    not_set = {key.name for key in found.keys if not key.is_set}
    assert not_set == {
        "actor_rollout_ref.actor.optim.lr",
        "critic.optim.lr",
        "trainer.total_training_steps",
    }
    assert sum("are not set: they belong to" in line for line in found.warnings) == 1
    assert "# lr: 0.001  # not set:" in found.text
    assert "optim.lr=" not in found.text

"""What is written for TRL, and that its gradient is kltune's: TRL's own trainers on one batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_case import SIGMA_R, adaptive, target, winner

from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.setting import Winner
from kltune.export.trl import export_trl
from kltune.spec.algorithm import ReferenceSpec


def export(found: Winner, version: str | None = None, **sizes: Any) -> Exported:
    return export_trl(found, target(found, "trl", version, **sizes))


def test_a_reverse_kl_in_the_loss_is_corrected_k3_beside_the_divided_advantages() -> None:
    found = export(winner("k2-loss", beta=0.1))
    assert found.builder == "GRPOConfig"
    assert found.values["beta"] == pytest.approx(0.1 / SIGMA_R)
    assert found.values["use_bias_correction_kl"] is True
    assert (found.values["loss_type"], found.values["scale_rewards"]) == ("dapo", "group")
    assert found.warnings == ()


@pytest.mark.parametrize("version", ["0.26.0", "0.26.2", "1.9.0", "1.11.0", "1.16.0"])
def test_the_correction_is_always_written_since_its_default_changed(version: str) -> None:
    assert export(winner("k3-loss"), version).values["use_bias_correction_kl"] is False
    assert export(winner("wk3-loss"), version).values["use_bias_correction_kl"] is True


def test_before_the_correction_only_the_forward_gradient_can_be_had() -> None:
    assert "use_bias_correction_kl" not in export(winner("k3-loss"), "0.25.1").values
    with pytest.raises(SpecError, match=r"forward one only.*--version 0\.26\.0.*k3-loss"):
        export(winner("wk3-loss"), "0.25.1")


@pytest.mark.parametrize(
    ("version", "loss", "scale"),
    [("0.21.0", "bnpo", True), ("0.22.2", "dapo", "group"), ("1.16.0", "dapo", "group")],
)
def test_names_follow_the_release(version: str, loss: str, scale: object) -> None:
    found = export(winner("k3-loss"), version)
    assert (found.values["loss_type"], found.values["scale_rewards"]) == (loss, scale)
    assert any("micro-batch" in line for line in found.warnings) is (loss == "bnpo")


def test_a_top_k_of_50_that_was_the_default_is_turned_off() -> None:
    assert export(winner("k3-loss"), "0.17.0").values["top_k"] is None
    assert "top_k" not in export(winner("k3-loss"), "0.18.2").values


def test_grpo_with_a_kl_in_the_reward_is_refused_with_the_nearest_that_works() -> None:
    with pytest.raises(SpecError, match=r"in the reward, before the group's.*--to verl.*k2-loss"):
        export(winner("k1-reward"))


def test_rloo_has_the_raw_price_and_no_controller() -> None:
    found = export(adaptive(beta=0.1, trainer={"algorithm": "rloo"}))
    assert found.builder == "RLOOConfig"
    assert found.values["beta"] == pytest.approx(0.3)
    assert found.values["normalize_advantages"] is False
    assert any("held at 0.3" in line for line in found.warnings)
    with pytest.raises(SpecError, match=r"another trainer .*--version 0\.22\.2"):
        export(winner("k1-reward", trainer={"algorithm": "rloo"}), "0.21.0")


def test_rloo_with_a_kl_in_the_loss_becomes_grpo_without_division() -> None:
    found = export(winner("k2-loss", beta=0.1, trainer={"algorithm": "rloo"}))
    assert found.values["scale_rewards"] == "none"
    assert found.values["loss_type"] == "luspo"
    assert found.values["beta"] == pytest.approx(0.1 * 7 / 8)
    assert any("(G - 1) / G" in line for line in found.warnings)
    older = export(winner("k3-loss", trainer={"algorithm": "rloo"}), "0.26.2")
    assert older.values["loss_type"] == "dr_grpo"
    assert any("before 1.10.0" in line for line in older.warnings)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trainer": {"algorithm": "ppo"}, "penalty": "k1-reward"}, "no PPO since 1.13.0"),
        ({"trainer": {"algorithm": "reinforce"}}, "whitens raw returns"),
        ({"penalty": "jeffreys-loss"}, "forward . reverse KL"),
    ],
)
def test_what_trl_can_not_do_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        export(winner(**changes))


def test_steps_and_learning_rate_are_set_only_where_they_mean_the_same() -> None:
    own = export(winner())
    assert (own.values["max_steps"], own.values["learning_rate"]) == (50, 1e-3)
    other = export(winner(), batch=1024, group=16)
    assert {"max_steps", "learning_rate"}.isdisjoint(other.values)
    assert (other.values["generation_batch_size"], other.values["num_generations"]) == (1024, 16)
    assert "# max_steps=50,  # not set:" in other.text


def test_beta_zero_has_no_reference() -> None:
    found = export(winner(None, beta=0.0))
    assert found.values["beta"] == 0.0
    assert "use_bias_correction_kl" not in found.values


def test_further_settings_are_carried_over() -> None:
    trainer = {
        "clip_ratio": 0.1,
        "clip_ratio_high": 0.28,
        "clip_ratio_max": 1.4,
        "entropy_bonus": 0.01,
        "epochs": 2,
        "minibatches": 2,
        "reference": ReferenceSpec(every=10, mixture=0.6).model_dump(),
    }
    found = export(winner(trainer=trainer))
    assert {
        "epsilon": 0.1,
        "epsilon_high": 0.28,
        "delta": 1.4,
        "entropy_coef": 0.01,
        "num_iterations": 2,
        "per_device_train_batch_size": 32,
        "generation_batch_size": 64,
        "ref_model_sync_steps": 40,
        "ref_model_mixup_alpha": 0.6,
        "max_steps": 200,
    }.items() <= found.values.items()


def test_the_file_is_python_that_builds_that_class() -> None:
    text = export(winner()).text
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.ImportFrom)
    assert tree.body[0].names[0].name == "GRPOConfig"
    assert text.startswith("# trl 1.16.0, exported by kltune from study kitchen, trial 7")


CASES: dict[str, tuple[Winner, float]] = {
    "grpo k2": (winner("k2-loss", 0.1), 1.0),
    "grpo wk3": (winner("wk3-loss", 0.1), 1.0),
    "grpo k3plus": (winner("k3plus-loss", 0.1), 1.0),
    "grpo k3": (winner("k3-loss", 0.1), 1.0),
    "grpo smtm": (winner("k3-loss", 0.1, {"aggregation": "seq-mean-token-mean"}), 1.0),
    "dr-grpo k2": (winner("k2-loss", 0.2, {"algorithm": "dr-grpo"}), 1.0),
    "dr-grpo k3": (winner("k3-loss", 0.2, {"algorithm": "dr-grpo"}), 1.0),
    "rloo k1": (winner("k1-reward", 0.2, {"algorithm": "rloo"}), 1.0),
    "rloo k2": (winner("k2-loss", 0.2, {"algorithm": "rloo"}), 3 / 4),
    "dr-grpo k1": (winner("k1-reward", 0.2, {"algorithm": "dr-grpo"}), 4 / 3 * 6),
}
"""A setting, and TRL's gradient over kltune's (group 4, length limit 6), as the warnings state it."""


@pytest.fixture(scope="module", params=[False, True], ids=["on-policy", "off-policy"])
def given_policies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[bool, Any]]:
    from parity.trl_batch import policies, restored_process

    off_policy = bool(request.param)
    with restored_process():
        yield off_policy, policies(tmp_path_factory.mktemp("reference"), off_policy=off_policy)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_the_exported_config_is_kltunes(
    name: str, given_policies: tuple[bool, Any], tmp_path: Path
) -> None:
    import torch
    from parity.own_step import Own, own_step
    from parity.trl_batch import (
        GROUP,
        LENGTHS,
        MAX_NEW_TOKENS,
        TEMPERATURE,
        GivenGRPO,
        GivenRLOO,
        trl_step,
    )

    off_policy, policies_on = given_policies
    given, factor = CASES[name]
    if off_policy and name.endswith("k1"):
        pytest.skip("TRL's RLOO has one ratio a completion, as its warning says")
    shapes = {
        "prompts": len(LENGTHS) // GROUP,
        "group_size": GROUP,
        "max_new_tokens": MAX_NEW_TOKENS,
        "temperature": TEMPERATURE,
    }
    fields = {**given.trainer.model_dump(exclude_defaults=True), **shapes}
    fields["epochs"] = (
        2 if off_policy else 1
    )  # with 1, TRL takes the policy now for the sampling one
    trainer = type(given.trainer).model_validate(fields)
    studied = replace(given, trainer=trainer, measured=replace(given.measured, mean_tokens=4.0))
    found = export(studied)
    kind = GivenGRPO if found.builder == "GRPOConfig" else GivenRLOO
    theirs = trl_step(kind, policies_on, tmp_path, **dict(found.values)).gradient_P
    penalty = studied.setting.penalty
    assert penalty is not None
    beta = studied.setting.beta
    trained = beta if penalty.in_reward else studied.coefficient(beta)
    assert trained is not None
    own = Own(
        algorithm=trainer.algorithm,
        aggregation=trainer.loss_aggregation,
        penalty=penalty,
        beta=trained,
    )
    ours = own_step(own, policies_on).gradient_P
    distance = torch.linalg.vector_norm(theirs - factor * ours)
    assert float(distance / torch.linalg.vector_norm(theirs)) <= 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_installed_trl_builds_the_exported_file(name: str, tmp_path: Path) -> None:
    import trl

    found = export(CASES[name][0])
    text = found.text.replace('output_dir="output"', f"output_dir={str(tmp_path)!r}")
    scope: dict[str, Any] = {}
    exec(
        compile(text.replace("\n)\n", "\n    bf16=False,\n    use_cpu=True,\n)\n"), "x", "exec"),
        scope,
    )
    assert isinstance(scope["config"], getattr(trl, found.builder))
    for key, value in found.values.items():
        assert getattr(scope["config"], key) == value, key


@pytest.mark.parametrize("version", ["0.22.0", "0.22.1"])
def test_releases_with_scale_rewards_upside_down_are_refused(version: str) -> None:
    with pytest.raises(SpecError, match=rf"inverted in TRL {version}; use --version 0\.22\.2"):
        export(winner("k3-loss"), version)
    rloo = winner("k1-reward", trainer={"algorithm": "rloo"})  # has no scale_rewards
    assert export(rloo, version).values["normalize_advantages"] is False

from __future__ import annotations

from typing import Any

import pytest
from export_case import SIGMA_R, STD_R, adaptive, target, winner

from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.openrlhf import export_openrlhf
from kltune.export.releases import listed_versions
from kltune.export.setting import Winner


def export(found: Winner, version: str | None = None, **sizes: Any) -> Exported:
    return export_openrlhf(found, target(found, "openrlhf", version, **sizes))


@pytest.mark.parametrize("version", listed_versions("openrlhf"))
@pytest.mark.parametrize("penalty", ["k1-reward", "k2-loss", "k3-loss", None])
def test_every_flag_is_one_of_the_release(version: str, penalty: str | None) -> None:
    found = export(winner(penalty, beta=0.1 if penalty else 0.0), version)
    listed = target(winner(), "openrlhf", version).keys.defaults
    for key in found.keys:
        assert key.name in listed
        assert key.comment
        choices = listed.get(f"{key.name} choices")
        assert choices is None or key.value in choices


@pytest.mark.parametrize(
    ("algorithm", "estimator", "expected"),
    [
        ("grpo", "group_norm", 0.1 / SIGMA_R),
        ("dr-grpo", "dr_grpo", 0.1 * 7 / 8),
        ("rloo", "rloo", 0.1),
        ("reinforce", "reinforce", 0.1),
        ("ppo", "gae", 0.1),
    ],
)
def test_the_price_follows_what_was_made_of_the_reward_by_then(
    algorithm: str, estimator: str, expected: float
) -> None:
    found = export(winner("k1-reward", trainer={"algorithm": algorithm}))
    assert found.values["--algo.advantage.estimator"] == estimator
    assert found.values["--algo.kl.init_coef"] == pytest.approx(expected)
    assert found.values["--algo.kl.estimator"] == "k1"
    assert "--algo.kl.use_loss" not in found.values


def test_in_the_loss_it_is_the_coefficient_and_the_estimator_has_the_gradient() -> None:
    found = export(winner("k2-loss", trainer={"algorithm": "reinforce"})).values
    assert found["--algo.kl.init_coef"] == pytest.approx(0.1 / STD_R)
    assert (found["--algo.kl.use_loss"], found["--algo.kl.estimator"]) == (True, "k2")
    assert export(winner("k3-loss")).values["--algo.kl.estimator"] == "k3"


@pytest.mark.parametrize("penalty", ["k1-reward", "k2-loss"])
def test_its_controller_moves_the_coefficient_in_both_places(penalty: str) -> None:
    found = export(adaptive(penalty=penalty, beta=0.1), batch=8192)
    assert found.values["--algo.kl.init_coef"] == pytest.approx(0.1 / SIGMA_R)
    assert found.values["--algo.kl.target"] == 0.25
    assert found.values["--algo.kl.horizon"] == 81920
    assert any("own estimator" in line for line in found.warnings) is (penalty == "k2-loss")


def test_beta_zero_has_no_reference() -> None:
    found = export(winner(None, beta=0.0)).values
    assert found["--algo.kl.init_coef"] == 0.0
    assert "--algo.kl.estimator" not in found


def test_sizes_and_steps() -> None:
    found = export(winner(trainer={"minibatches": 4, "epochs": 2}), batch=1024, group=16).values
    assert found["--rollout.batch_size"] == 64
    assert found["--rollout.n_samples_per_prompt"] == 16
    assert (found["--train.batch_size"], found["--train.max_epochs"]) == (256, 2)
    assert "--actor.adam.lr" not in found
    with pytest.raises(SpecError, match="can't be cut into 3"):
        export(winner(trainer={"prompts": 6, "minibatches": 3}), batch=64)


def test_what_differs_is_warned_of_and_what_is_unknown_refused() -> None:
    trainer = {
        "aggregation": "seq-mean-token-mean",
        "clip_ratio_high": 0.28,
        "clip_ratio_max": 3.0,
        "entropy_bonus": 0.01,
        "epochs": 2,
        "reference": {"every": 5},
    }
    found = export(winner("k2-loss", trainer=trainer))
    text = "\n".join(found.warnings)
    for part in ("1 / its length", "stays the start", "±10 after the baseline", "importance ratio"):
        assert part in text
    assert found.values["--actor.eps_clip_low_high"] == (0.2, 0.28)
    assert found.values["--actor.dual_clip"] == 3.0
    assert "--actor.eps_clip_low_high 0.2 0.28  #" in found.text
    assert any("per micro-batch" in line for line in export(winner(), "0.10.2").warnings)
    assert any("cosine" in line for line in export(winner(), "0.8.3").warnings)
    assert any(
        "times a constant" in w for w in export(winner(trainer={"algorithm": "rloo"})).warnings
    )
    with pytest.raises(SpecError, match="no setting of OpenRLHF"):
        export(winner("jeffreys-loss"))
    with pytest.raises(SpecError, match="--dual_clip is needed"):
        export(winner(trainer={"clip_ratio_max": 3.0}), "0.8.3")


def test_the_kl_that_dynamic_batches_divide_is_warned_of_where_it_is_logged() -> None:
    def has(found: Exported) -> bool:
        return any("dynamic_batch_enable" in line for line in found.warnings)

    assert has(export(winner("k2-loss")))
    assert has(export(winner("k2-loss"), "0.10.3"))
    assert not has(export(winner("k2-loss"), "0.10.2"))
    assert not has(export(winner("k1-reward")))


def test_a_controller_that_its_source_doubts_is_warned_of() -> None:
    def has(found: Exported) -> bool:
        return any("incompatible" in line for line in found.warnings)

    assert has(export(adaptive()))
    assert not has(export(adaptive(), "0.8.3"))
    assert not has(export(winner("k1-reward")))

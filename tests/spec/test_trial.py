from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kltune.spec.trial import ControllerKind, TrialSpec

PROPORTIONAL = {"controller": "proportional", "target_kl": 0.1, "horizon": 64}


def spec(**changes: Any) -> TrialSpec:
    return TrialSpec.model_validate(
        {"beta": 0.1, "penalty": "k2-loss", "learning_rate": 1e-3, **changes}
    )


def test_a_proportional_controller_can_not_leave_beta_0() -> None:
    with pytest.raises(ValidationError, match="can't leave beta = 0"):
        spec(beta=0, **PROPORTIONAL)
    assert spec(beta=1e-3, **PROPORTIONAL).horizon == 64


def test_a_proportional_controller_needs_a_horizon() -> None:
    with pytest.raises(ValidationError, match="proportional needs horizon"):
        spec(**{**PROPORTIONAL, "horizon": None})


@pytest.mark.parametrize("kind", [k for k in ControllerKind if k.is_threshold])
def test_a_threshold_rule_has_a_target_and_can_not_leave_beta_0(kind: ControllerKind) -> None:
    assert kind.has_target
    with pytest.raises(ValidationError, match="can't leave beta = 0"):
        spec(beta=0, controller=kind.value, target_kl=0.1)


def test_only_beta_0_does_without_a_penalty() -> None:
    assert spec(beta=0, penalty=None).penalty is None
    with pytest.raises(ValidationError, match="needed where beta is above 0"):
        spec(penalty=None)

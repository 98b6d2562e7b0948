from __future__ import annotations

from collections.abc import Sequence

import pytest
from diagnose_case import run_log

from kltune.diagnose import control_rules
from kltune.diagnose.runlog import RunLog
from kltune.symptoms.curve import Quantity


def controlled(beta: Sequence[float], kl: float, target: float, unit: str = "nats/token") -> RunLog:
    count = len(beta)
    quantity = Quantity.KL_SEQ if "sequence" in unit else Quantity.KL_TOKEN
    other = Quantity.KL_TOKEN if "sequence" in unit else Quantity.KL_SEQ
    values = {
        Quantity.BETA: beta,
        Quantity.TARGET: [target] * count,
        quantity: [kl] * count,
        other: [target] * count,
    }
    return run_log(values, units={Quantity.TARGET: unit})


@pytest.mark.parametrize("unit", ["nats/token", "nats/sequence"])
def test_a_beta_that_stands_still_off_target_is_inert(unit: str) -> None:
    found = control_rules.inert(controlled([0.2, 0.201] * 20, 0.5, 0.1, unit))
    assert found is not None
    assert f"400 % above its target 0.1 {unit}" in found.detail


def test_a_beta_that_stands_still_on_target_is_right() -> None:
    assert control_rules.inert(controlled([0.2] * 40, 0.11, 0.1)) is None


def test_a_beta_that_moves_is_not_inert() -> None:
    assert control_rules.inert(controlled([0.1 * 1.05**i for i in range(40)], 0.5, 0.1)) is None


@pytest.mark.parametrize(
    ("betas", "kl", "cause"),
    [
        ([*[0.1 * 1.2**i for i in range(20)], *[4.0] * 20], 0.5, "upper_bound"),
        ([*[0.1 / 1.2**i for i in range(20)], *[0.001] * 20], 0.02, "lower_bound"),
        ([*[0.1 * 1.2**i for i in range(20)], *[4.0] * 20], 0.1, None),
        ([*[0.1 * 1.2**i for i in range(20)], *[4.0] * 20], 0.02, None),
    ],
)
def test_a_bound_matters_where_the_kl_is_on_its_far_side(
    betas: list[float], kl: float, cause: str | None
) -> None:
    found = control_rules.saturated(controlled(betas, kl, 0.1))
    assert (found.cause if found else None) == cause
    if found:
        assert found.first_step == 21


def test_rules_of_controllers_are_not_asked_without_one() -> None:
    run = run_log({Quantity.KL_TOKEN: [0.1] * 10})
    assert all(rule.is_optional and rule.lacks(run) for rule in control_rules.RULES)

from __future__ import annotations

import pytest

from kltune.diagnose.as_set import as_set
from kltune.diagnose.known import TOKEN, Known
from kltune.symptoms.curve import Quantity

_MODE = "actor_rollout_ref/actor/loss_agg_mode"
_KL = Known("actor/kl_loss", Quantity.KL_TOKEN, TOKEN, "k3", "by default", is_certain=False)


@pytest.mark.parametrize(
    ("mode", "quantity", "is_mean_of_means"),
    [
        ("token-mean", Quantity.KL_TOKEN, False),
        ("seq-mean-token-mean", Quantity.KL_TOKEN, True),
        ("seq-mean-token-sum", Quantity.KL_SEQ, False),
    ],
)
def test_verls_aggregation_decides_the_unit(
    mode: str, quantity: Quantity, is_mean_of_means: bool
) -> None:
    found = as_set(_KL, "verl", {_MODE: mode}, [0.1])
    assert found is not None
    assert (found.quantity, found.is_mean_of_means, found.is_certain) == (
        quantity,
        is_mean_of_means,
        True,
    )


def test_a_sum_over_a_constant_is_in_no_unit() -> None:
    assert as_set(_KL, "verl", {_MODE: "seq-mean-token-sum-norm"}, [0.1]) is None


def test_the_estimator_of_the_settings_stays_whatever_the_sign() -> None:
    # What is below 0 although it is k3 is for the rules to see.
    settings: dict[str, object] = {"actor_rollout_ref/actor/kl_loss_type": "low_var_kl"}
    found = as_set(_KL, "verl", settings, [-0.1])
    assert found is not None
    assert found.estimator == "k3"


def test_without_settings_a_value_below_zero_is_k1() -> None:
    for framework, estimator in (("verl", "k1"), ("trl", "k1"), ("nemo-rl", "k3")):
        found = as_set(_KL, framework, {}, [0.1, -0.1])
        assert found is not None
        assert found.estimator == estimator

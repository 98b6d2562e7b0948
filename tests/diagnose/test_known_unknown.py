from __future__ import annotations

import pytest

from kltune.diagnose.known import SEQ, TOKEN, UNDECIDED
from kltune.diagnose.known_unknown import by_meaning
from kltune.symptoms.curve import Quantity


@pytest.mark.parametrize(
    "name", ["kl", "train/kl", "KL", "mean_kl", "kl_divergence", "ref_kl", "kl/mean"]
)
def test_a_kl_of_an_unknown_trainer_has_no_unit_yet(name: str) -> None:
    known = by_meaning(name)
    assert known is not None
    assert known.is_kl
    assert known.unit == UNDECIDED
    assert not known.is_certain


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("kl_token", TOKEN),
        ("kl_per_token", TOKEN),
        ("kl_seq", SEQ),
        ("kl_per_sequence", SEQ),
        ("objective/kl", SEQ),
    ],
)
def test_a_unit_in_the_name_counts(name: str, unit: str) -> None:
    known = by_meaning(name)
    assert known is not None
    assert (known.unit, known.is_certain) == (unit, True)


@pytest.mark.parametrize(
    "name", ["ppo_kl", "approx_kl", "approxkl_avg", "losses/approx_kl", "policykl"]
)
def test_an_update_kl_is_known_by_its_name(name: str) -> None:
    known = by_meaning(name)
    assert known is not None
    assert known.quantity is Quantity.UPDATE_KL_TOKEN


@pytest.mark.parametrize("name", ["kl_loss", "loss/kl", "kl_penalty", "loss_kl"])
def test_a_kl_that_may_hold_the_coefficient_is_not_read(name: str) -> None:
    known = by_meaning(name)
    assert known is not None
    assert known.quantity is None


@pytest.mark.parametrize("name", ["kleene", "weekly", "sparkle", "eval/kl", "val_loss", "time"])
def test_other_names_mean_nothing(name: str) -> None:
    assert by_meaning(name) is None


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("reward/mean", Quantity.PROXY),
        ("env/reward", Quantity.PROXY),
        ("reward/std", Quantity.PROXY_STD),
        ("gold", Quantity.GOLD),
        ("eval/gold", Quantity.GOLD),
        ("kl_coef", Quantity.BETA),
        ("completion_length", Quantity.LENGTH),
        ("train/grad_norm", Quantity.GRAD_NORM),
        ("lr", Quantity.LEARNING_RATE),
    ],
)
def test_plain_names_are_read_as_what_they_say(name: str, quantity: Quantity) -> None:
    known = by_meaning(name)
    assert known is not None
    assert known.quantity is quantity

from __future__ import annotations

import pytest

from kltune.errors import SpecError
from kltune.export.key import Exported, Key, check_known, rounded
from kltune.export.releases import key_list


def test_values_are_the_keys_that_are_set() -> None:
    keys = (Key("beta", 0.1, "x"), Key("max_steps", 5, "y", is_set=False))
    found = Exported("trl", "1.16.0", keys, ())
    assert found.values == {"beta": 0.1}
    assert found.with_text("there").text == "there"


def test_a_key_that_a_release_does_not_have_is_refused() -> None:
    listed, _ = key_list("trl", "0.25.1")
    check_known((Key("beta", 0.1, ""), Key("nonsense", 0, "", is_set=False)), listed, "GRPOConfig.")
    with pytest.raises(SpecError, match=r"GRPOConfig.use_bias_correction_kl is needed.*0\.25\.1"):
        check_known((Key("use_bias_correction_kl", True, ""),), listed, "GRPOConfig.")


def test_rounding_keeps_what_matters() -> None:
    assert rounded(0.1 * 3) == 0.3
    assert rounded(1.23456789e-7) == 1.23456789e-7


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (0.000999999999, 0.001),
        (0.00999999997, 0.01),
        (rounded(0.001 / 0.3) * 0.3, 0.001),
        (0.1 + 0.2, 0.3),
        (1 / 3, 0.333333333),
        (0.00999999, 0.00999999),
        (1.00000001, 1.00000001),
        (209.0, 209.0),
        (0.0, 0.0),
        (-0.123456789, -0.123456789),
    ],
)
def test_what_was_rounded_before_comes_back_to_itself(given: float, written: float) -> None:
    assert rounded(given) == written

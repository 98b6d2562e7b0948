from __future__ import annotations

from dataclasses import replace

from diagnose_case import run_log

from kltune.diagnose.findings import diagnose
from kltune.diagnose.unread import unread_kl
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

PROXY = {Quantity.PROXY: [0.1 * i for i in range(30)]}


def test_a_log_whose_kl_was_read_or_is_absent_has_no_sign() -> None:
    assert unread_kl(run_log(PROXY)) is None


def test_an_unknown_unit_is_the_condition_and_the_flag_the_first_thing() -> None:
    why = (
        "kl is logged, but its unit can't be told; say it by --kl-unit token or --kl-unit sequence"
    )
    found = diagnose(replace(run_log(PROXY), unread_kl={"kl": why}))
    first = found.findings[0]
    assert (found.condition, found.grade) == ("kl_unit_unknown", Grade.WARN)
    assert first.first.startswith("Say --kl-unit token or --kl-unit sequence")
    assert "reference_kl_missing" not in {one.sign.name for one in found.findings}
    assert "Switch it on" not in str(found.as_json())


def test_a_kl_of_words_is_its_own_condition() -> None:
    found = diagnose(replace(run_log(PROXY), unread_kl={"kl": "kl holds no number (row 1: 'x')"}))
    assert found.condition == "kl_not_a_number"

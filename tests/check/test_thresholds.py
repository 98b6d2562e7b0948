from __future__ import annotations

from kltune.check import thresholds


def test_a_warning_comes_before_its_failure() -> None:
    for gaps in thresholds.GAPS.values():
        assert gaps.warn < gaps.fail
    assert thresholds.TOKENIZER_WARN < thresholds.TOKENIZER_FAIL <= 1
    assert thresholds.UNSCORED_WARN < thresholds.UNSCORED_FAIL
    assert thresholds.PENALTY_IDLE < 1 < thresholds.PENALTY_WARN


def test_every_precision_of_the_trainer_has_its_gaps() -> None:
    assert set(thresholds.GAPS) == {"fp32", "bf16"}
    assert thresholds.GAPS["fp32"].fail < thresholds.GAPS["bf16"].warn

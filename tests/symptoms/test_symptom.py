from __future__ import annotations

from kltune.symptoms.symptom import SymptomKind
from kltune.trial.outcome import StopReason


def test_every_symptom_has_the_stop_reason_of_its_name() -> None:
    assert StopReason.DIVERGED.value == "diverged"  # what not finite is called as an ending
    for kind in set(SymptomKind) - {SymptomKind.NON_FINITE}:
        assert StopReason(kind.value).name == kind.name

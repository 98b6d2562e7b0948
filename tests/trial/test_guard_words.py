from __future__ import annotations

from kltune.spec.guards import GuardsSpec
from kltune.trial.guard_words import FIELD_OF, STOPPED
from kltune.trial.outcome import StopReason

NOT_GUARDS = {
    StopReason.DONE,
    StopReason.PRUNED,
    StopReason.ERROR,
    StopReason.OUT_OF_MEMORY,
    StopReason.DISK,
    StopReason.INTERRUPTED,
}


def test_every_reason_of_a_guard_has_words_and_a_field_of_the_spec() -> None:
    assert set(STOPPED) == set(StopReason) - NOT_GUARDS
    assert set(FIELD_OF) == set(STOPPED) - {StopReason.DIVERGED}
    assert set(FIELD_OF.values()) == set(GuardsSpec.model_fields)

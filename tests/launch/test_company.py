from __future__ import annotations

from kltune.launch.company import Company
from kltune.screen.progress import Progress, Scope
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict


def progress(before: int = 1) -> Progress:
    unit = (KLUnit.TOKEN, BetaUnit.REWARD)
    return Progress(Scope("s", 9, 10, *unit, ended_before=before), clock=lambda: 0.0)


def outcome(reason: StopReason) -> TrialOutcome:
    return TrialOutcome(3, 1, Verdict(reason, "so"), 10, 0.5, True, -1.0, 10)


def test_what_others_ended_is_counted_beside_the_own() -> None:
    shown, ended = progress(), [2]
    company = Company(shown, lambda: ended[0], lambda: True)
    company.ended(outcome(StopReason.DONE))
    assert shown.elsewhere == 0  # one before, one of this process
    ended[0] = 5
    company.ended(outcome(StopReason.DONE))
    assert shown.elsewhere == 2
    company.ended(outcome(StopReason.INTERRUPTED))
    assert shown.elsewhere == 2
    assert shown.left_s is None


def test_a_lone_sweep_never_asks_the_storage() -> None:
    def never() -> int:
        raise AssertionError("asked")

    shown = progress()
    Company(shown, never, lambda: False).ended(outcome(StopReason.DONE))
    assert shown.elsewhere == 0

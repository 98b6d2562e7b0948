"""Rows and the answer in, what a reader must be warned of out."""

from __future__ import annotations

from kltune.report.compare import penalty_to_spread
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import StudyRows
from kltune.spec.trial import BetaUnit
from kltune.trial.outcome import TrialState
from kltune.trial.words import number, score

LARGEST_PENALTY_RATIO = 10.0
"""Mean KL penalty over reward spread above which nothing but the penalty can be learned (case E3)."""


def cautions(study: StudyRows, answer: Answer) -> tuple[str, ...]:
    """What is unfinished, what was higher but does not count, and where a penalty drowned the reward."""
    texts: list[str] = []
    running = len(study.of_state(TrialState.RUNNING))
    if running and isinstance(answer, Recommendation):
        texts.append(f"Trials that have not ended: {running}; this answer may still change.")
    known = {t.number for t in study.trials}
    lost = [str(n) for n in range(max(known, default=-1) + 1) if n not in known]
    if lost:
        texts.append(
            f"Missing from the record (their folders under trials/ are gone): trials {', '.join(lost)}. "
            "They count towards the budget but are in no table or figure here."
        )
    best = answer.best.peak if isinstance(answer, Recommendation) else None
    higher = [
        t
        for t in study.of_state(TrialState.PRUNED)
        if best is not None and t.peak is not None and t.peak.gold > best.gold
    ]
    texts += [
        f"Pruned trial {t.number} was higher at its best evaluation (gold {score(t.peak.gold, t.peak.gold_se)}, "
        f"step {t.peak.step}) than the recommended one. Only complete trials are recommended."
        for t in higher
        if t.peak is not None
    ]
    for row in study.trials:
        ratio = penalty_to_spread(row, study.spec.beta_unit is BetaUnit.REWARD)
        if ratio is not None and ratio > LARGEST_PENALTY_RATIO:
            texts.append(
                f"Trial {row.number}: the mean KL penalty is {number(ratio)} times the spread of the rewards "
                "within a group, so the reward hardly counts. Lower beta or rescale the reward."
            )
    return tuple(texts)

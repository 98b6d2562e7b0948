"""Rows and the answer in, what a reader must be warned of out."""

from __future__ import annotations

from kltune.report.choice import choose
from kltune.report.compare import spread_ratio
from kltune.report.controller_blocks import judge, verdict_words
from kltune.report.controller_rules import target_words
from kltune.report.controllers import Conduct
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.outcome import StopReason, TrialState
from kltune.trial.words import number, score

LARGEST_PENALTY_RATIO = 10.0
"""Mean KL penalty over reward spread above which nothing but the penalty can be learned (case E3)."""


def cautions(study: StudyRows, answer: Answer) -> tuple[str, ...]:
    """What is unfinished, what was higher but does not count, and where a penalty drowned the reward."""
    texts: list[str] = []
    running = len(study.of_state(TrialState.RUNNING))
    if running and isinstance(answer, Recommendation):
        who = " (no process is known to run them: the same kltune sweep goes on with them)"
        who = who if study.is_running is False else ""
        texts.append(f"Trials that have not ended: {running}{who}; this answer may still change.")
    known = {t.number for t in study.trials}
    lost = [str(n) for n in range(max(known, default=-1) + 1) if n not in known]
    if lost:
        texts.append(
            f"Missing from the record (their folders under trials/ are gone): trial{'s' * (len(lost) > 1)} {', '.join(lost)}. "
            "What is gone counts towards the budget but is in no table or figure here."
        )
    if isinstance(answer, Recommendation):
        texts += _missed(study, answer)
        texts += _pruned(study, answer)
        texts += _biased(answer)
        texts += _warned(answer)
    texts += _faulty(study)
    texts += _touched(study)
    texts += _drowned(study)
    return tuple(texts)


_OFF_TARGET = (Conduct.DOES_NOT_HOLD, Conduct.NEVER_ARRIVES, Conduct.OSCILLATES, Conduct.WRONG_SIGN)


def _missed(study: StudyRows, answer: Recommendation) -> list[str]:
    """A controller that does not do what it is for must not be typed in for that."""
    row = choose(study, answer).row
    found = judge(study, row)
    if found is None or found.conduct not in _OFF_TARGET:
        return []
    return [
        f"The controller of trial {row.number} did not keep KL at its target of {target_words(study, row)}: "
        f"{verdict_words(study, row, found)}. What was good is the KL that it reached, not the target."
    ]


def _pruned(study: StudyRows, answer: Recommendation) -> list[str]:
    """Pruned trials that were above the recommended one; one sentence for many."""
    best = answer.best.peak
    if best is None:
        return []
    higher = [
        (row, row.peak)
        for row in study.of_state(TrialState.PRUNED)
        if row.peak is not None and row.peak.gold > best.gold
    ]
    if not higher:
        return []
    top, peak = max(higher, key=lambda pair: pair[1].gold)
    place = f"(gold {score(peak.gold, peak.gold_se)}, step {peak.step})"
    if len(higher) == 1:
        head = f"Pruned trial {top.number} was higher at its best evaluation {place} than the recommended one."
    else:
        head = (
            f"{len(higher)} pruned trials were higher at their best evaluation than the recommended one, the highest of "
            f"them trial {top.number} {place}."
        )
    return [f"{head} Only complete trials are recommended."]


def _drowned(study: StudyRows) -> list[str]:
    """Trials in which nothing but the penalty could be learned; one sentence for many."""
    found = [(ratio, row) for row in study.trials if (ratio := _ratio(study, row)) is not None]
    if not found:
        return []
    ratio, worst = max(found, key=lambda pair: pair[0])
    head = f"Trial {worst.number}: the"
    if len(found) > 1:
        head = f"In {len(found)} trials, most in trial {worst.number}, the"
    return [
        f"{head} mean KL penalty is {number(ratio)} times the spread of the rewards "
        "within a group, so the reward hardly counts. Lower beta or rescale the reward."
    ]


def _ratio(study: StudyRows, row: TrialRow) -> float | None:
    ratio = spread_ratio(study, row)
    return ratio if ratio is not None and ratio > LARGEST_PENALTY_RATIO else None


def _biased(answer: Recommendation) -> list[str]:
    """A penalty that the spec had to allow is not recommended without its reason."""
    penalty = answer.best.setting.penalty
    if penalty is None or answer.best.setting.beta == 0 or penalty.nature.refusal is None:
        return []
    return [
        f"The recommended penalty is biased (allow_biased): {penalty.nature.refusal}. "
        f"Gradient of {penalty.value}: {penalty.nature.gradient}."
    ]


def _warned(answer: Recommendation) -> list[str]:
    """What guards saw of the recommended trial up to where it is to be stopped."""
    last = answer.plateau.last_step
    return [
        f"The guard {w.guard} warned of the recommended trial at step {w.step}: {w.detail}."
        for w in answer.best.warnings
        if w.first_step <= last
    ]


def _faulty(study: StudyRows) -> list[str]:
    """Trials that show the set-up to be wrong put all others in doubt as well."""
    rows = [row for row in study.trials if row.reason is StopReason.NEGATIVE_KL]
    if not rows:
        return []
    listed = ", ".join(str(row.number) for row in rows)
    return [
        f"The guard negative_kl ended trial{'s' * (len(rows) > 1)} {listed}: {rows[0].detail}. A clearly negative "
        "KL is a fault of the set-up (sampling, mask, or log-probs), not of a setting, so no number here can be "
        "trusted before it is found. kltune check looks for it."
    ]


TOUCHED_WORDS = {
    "train/penalty_clipped_frac": ("trainer.kl.clip", "held the KL of", "of the tokens"),
    "train/score_clipped_frac": ("trainer.reward.clip", "held", "of the scores"),
    "train/unscored_frac": ("The proxy", "could not score", "of the completions"),
    "ctrl/at_bound": ("control.beta_min or beta_max", "held beta in", "of the steps"),
}
"""Who did it, what it did, and to what share of what."""


def _touched(study: StudyRows) -> list[str]:
    """What was clipped, bounded or left unscored: never silent."""
    texts: list[str] = []
    for name, (who, did, what) in TOUCHED_WORDS.items():
        shares = {t.number: share for t in study.trials if (share := t.curve.touched[name]) > 0}
        if shares:
            worst = max(shares, key=lambda number: shares[number])
            trials = "trial" if len(shares) == 1 else f"{len(shares)} trials, most in trial"
            texts.append(f"{who} {did} {100 * shares[worst]:.2g} % {what} ({trials} {worst}).")
    return texts

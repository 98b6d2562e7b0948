"""A recommendation in; the sentence on what it can't be told apart from, the baselines among it by name, out."""

from __future__ import annotations

from kltune.confirm.result import ConfirmResult
from kltune.report.recommend import Recommendation, Versus, is_baseline
from kltune.report.rows import StudyRows, TrialRow
from kltune.trial.words import count_words, number, origin_words

WIDE = 10.0
"""Tied betas whose largest is this many times the smallest are worth naming; so is a 0 among them."""


def tie_words(study: StudyRows, found: Recommendation) -> str:
    """One sentence; empty where the setting is told apart from all others."""
    ranking = found.ranking
    if len(ranking.compared) + len(ranking.left_out) < 2:
        return only_words(study)
    if ranking.found is None:
        return "How it compares can't be told: scores by prompt are not on record."
    if not found.tied:
        return ""
    named = _named(found)
    if named and len(found.tied) == 1:
        return f"Not told apart from {named}."
    words = f"Not told apart from {count_words(len(found.tied), 'other setting')}{_span(found)}"
    return f"{words}, among them {named}." if named else f"{words}."


def only_words(study: StudyRows) -> str:
    """Of the one trial that can be recommended."""
    total = len(study.trials)
    if total == 1:
        return "It is the only trial on record: there is nothing to compare it with."
    return f"It is the only feasible one of {total} trials: there is nothing to compare it with."


def is_compared(found: Recommendation) -> bool:
    """Whether there was anything to tell it apart from."""
    return found.ranking.found is not None


def confirmed_tie_words(result: ConfirmResult) -> str:
    """The best known recipe or beta = 0 on fresh seeds, where it is tied; empty where it is not, or none ran."""
    best = result.main.best_baseline
    if best is None or best.is_told_apart:
        return ""
    origin = result.arms[best.arm].origin
    words = _lead(
        _name(origin), best.difference, f"95 % interval {best.low:+.3f} to {best.high:+.3f}"
    )
    zero = next((a for a in result.main.against if result.arms[a.arm].origin == "zero"), None)
    if zero is not None and zero.arm != best.arm and not zero.is_told_apart:
        words = f"beta = 0 and {words}"
    return f", among them {words}"


def _others(found: Recommendation) -> list[TrialRow]:
    """Those that it can't be told from; where a tie was broken, the highest is one of them."""
    group = (found.highest, *found.tied)
    return [row for row in group if row.number != found.best.number]


def _span(found: Recommendation) -> str:
    """The range of the others' beta, where it is wide."""
    betas = [row.setting.beta for row in _others(found)]
    low, high = min(betas), max(betas)
    if len(betas) < 2 or low == high or (low > 0 and high < WIDE * low):
        return ""
    return f" (betas from {number(low)} to {number(high)})"


def _named(found: Recommendation) -> str:
    """The best of the tied known recipes and beta = 0, by value, with its interval; beta = 0 in any case."""
    numbers = {row.number for row in _others(found)}
    tied = [versus for versus in found.baselines if versus.row.number in numbers]
    if not tied:
        return ""
    best = max(tied, key=_value)
    words = _name(best.row.origin)
    if (difference := best.difference) is not None:
        words = _lead(words, difference.mean, difference.interval)
    is_zero_tied = any(_is_zero(row) for row in _others(found))
    if is_zero_tied and not _is_zero(best.row):
        words = f"beta = 0 and {words}"
    return words


def _is_zero(row: TrialRow) -> bool:
    return row.setting.beta == 0 and is_baseline(row)


def _value(versus: Versus) -> tuple[float, int]:
    value = versus.row.value
    return (float("-inf") if value is None else value, -versus.row.number)


def _name(origin: str) -> str:
    return "beta = 0" if origin == "zero" else f"the {origin_words(origin)}"


def _lead(name: str, difference: float, interval: str) -> str:
    """The recommended setting minus the other one, in gold."""
    better = " (nominally better: this one has" if difference < 0 else " (this one has"
    return f"{name}{better} {difference:+.3f} gold, {interval})"

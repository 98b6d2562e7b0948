"""What the over-optimisation law says of a study in; the same in sentences for people out."""

from __future__ import annotations

import math

from kltune.report.law_findings import BetaFinding, BetaVerdict, Budget, LawFindings, TrialLaw
from kltune.spec.trial import ControllerKind
from kltune.statistics.frontier import Frontier
from kltune.statistics.law import LawDoubt, LawFit, LawVerdict
from kltune.statistics.law_errors import Estimate
from kltune.statistics.law_pooled import Gap
from kltune.statistics.settling import Settling, Trend
from kltune.trial.words import MISSING, number

_WILD = 100
"""An interval of a factor that is this wide says nothing."""

_DOUBTS = {
    LawDoubt.TOO_FEW: "too few evaluations after the start, trials, or prompts",
    LawDoubt.NO_BEND: "gold does not bend enough over the KL that was reached to tell a peak",
    LawDoubt.OUTSIDE: "the KL range is too short: the peak may lie outside it",
}


def pooled_words(fit: LawFit, gap: Gap | None) -> str:
    """Where gold peaks by one law for all trials, or why that can't be said."""
    span = f"{number(fit.kl_range[0])} to {number(fit.kl_range[1])} nats/sequence"
    if fit.kl_peak is None:
        return f"not identifiable: {_DOUBTS[LawDoubt.TOO_FEW]}"
    if fit.verdict is LawVerdict.REJECTED:
        return (
            "law rejected: over all trials gold does not follow d · (a − b · log d). A law that holds would be missed "
            f"by as much in {chance_words(fit.misfit_p)} of studies{_gap_words(gap)}. Its peak is not given; the trials' own "
            "peaks stand"
        )
    if fit.verdict is LawVerdict.IDENTIFIED:
        return (
            f"KL* = {interval_words(fit.kl_peak)} nats/sequence, by one law for all trials (KL reached: {span}). Gold "
            f"rises up to there, by {number(fit.gain_peak)} over the start, and falls beyond"
        )
    text = f"not identifiable: {_DOUBTS[fit.doubt]} (KL reached: {span})"
    at_least = fit.kl_peak.low
    if at_least > fit.kl_range[0]:
        text += f". If there is a peak, it is not below {number(at_least)} nats/sequence"
    return text


def _gap_words(gap: Gap | None) -> str:
    if gap is None:
        return ""
    side = "above" if gap.gold > 0 else "below"
    return (
        f". It is off most between {number(gap.kl_low)} and {number(gap.kl_high)} nats/sequence, where gold is "
        f"{number(abs(gap.gold), 2)} {side} it"
    )


def frontier_words(frontier: Frontier) -> str:
    """Whether beta does more than to set how far a run goes."""
    if not frontier.is_tested:
        return (
            f"not tested: {frontier.num_trials} trials with {frontier.num_betas} values of beta are too few, or "
            "they do not reach the same KL"
        )
    gain = (
        f"{_signed(frontier.gain)} gold ({_signed(frontier.low)} to {_signed(frontier.high)}) from the lowest to the "
        f"highest beta at the same KL of {number(frontier.kl)} nats/sequence"
    )
    if frontier.is_one:
        return (
            f"can't be told from one frontier: {gain}. As far as these trials show, beta sets how far a run goes and "
            "not what it gets there"
        )
    more = "more" if frontier.gain > 0 else "less"
    return f"no: a higher beta gives {more} gold at the same KL: {gain}"


def settling_words(found: LawFindings) -> str:
    """How many trials had come to rest; the others favour low betas."""
    counts = {t: [law for law in found.trials if law.settling.trend is t] for t in Trend}
    parts = [
        f"{trend.value} in {len(laws)}{_numbers(laws) if trend is Trend.RISING else ''}"
        for trend, laws in counts.items()
        if laws
    ]
    text = f"{'; '.join(parts)} of {len(found.trials)} trials (last half of the steps)"
    if counts[Trend.RISING]:
        text += ". A trial whose KL still rises looks better than it would stay: short trials favour low betas"
    return text


def beta_words(beta: BetaFinding) -> str:
    """Whether the recommended beta can be carried over, and why not."""
    row, rest = beta.law.row, beta.law.settling
    if row.setting.beta == 0:
        return f"trial {row.number} has no KL penalty: where it stops is set by its steps alone"
    if row.setting.controller is not ControllerKind.FIXED:
        moved = row.beta_range
        span = "" if moved is None else f" from {number(moved[0])} to {number(moved[1])}"
        return (
            f"trial {row.number} has no one beta: its {row.setting.controller.value} controller moved it{span}. What can be "
            "carried over is the rule, and the KL"
        )
    if beta.verdict is BetaVerdict.TOLD:
        return (
            f"yes: KL of trial {row.number} had settled at {number(rest.level)} nats/sequence and it is stopped at "
            f"{number(beta.kl_stop)}: this beta held it there"
        )
    if rest.trend is Trend.RISING:
        why = f"its KL was still rising at the end ({factor_words(rest)})"
    elif rest.trend is Trend.FALLING:
        why = f"its KL was still falling at the end ({factor_words(rest)})"
    elif rest.trend is Trend.UNTOLD:
        why = f"whether its KL had settled can't be told ({factor_words(rest)})"
    elif not beta.is_at_level:
        why = (
            f"it is stopped at {number(beta.kl_stop)} nats/sequence, and its KL settled at {number(rest.level)}: the "
            "step decides where it stops, not beta"
        )
    else:
        why = "it was ended early, before its KL could settle"
    return f"no, beta can't be told from trial {row.number}: {why}"


def budget_words(found: LawFindings) -> str:
    """What to use instead of beta, where beta can't be told; empty without a recommended trial."""
    if found.beta is None or found.budget is None:
        return ""
    kl = _budget_text(found.budget)
    if found.beta.verdict is BetaVerdict.TOLD:
        return f"beta, and as a check the KL: {kl}"
    if found.beta.law.row.setting.controller is not ControllerKind.FIXED:
        return f"the controller's settings, and as a check a KL budget: stop at {kl}"
    return f"a KL budget and not beta: stop at {kl}"


def _budget_text(budget: Budget) -> str:
    span = f"{number(budget.kl)} nats/sequence"
    if budget.source == "law":
        return f"{span} ({number(budget.low)} to {number(budget.high)}), where the law peaks"
    return (
        f"{span}, where the recommended trial peaked ({number(budget.low)} to {number(budget.high)} at the steps that "
        "can't be told from its best)"
    )


def factor_words(found: Settling) -> str:
    """By how much KL changes over the last half of the steps."""
    if math.isnan(found.factor):
        return f"only {found.num_steps} steps to look at"
    if found.high > _WILD * found.low:
        return f"it changes too wildly over the last {found.num_steps} steps"
    return f"× {number(found.factor)} over {found.num_steps} steps, {number(found.low)} to {number(found.high)}"


def interval_words(estimate: Estimate | None) -> str:
    """A number with its interval."""
    if estimate is None:
        return MISSING
    return f"{number(estimate.value)} ({number(estimate.low)} to {number(estimate.high)})"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def chance_words(p_value: float) -> str:
    """A share in percent."""
    return "less than 0.1 %" if p_value < 0.001 else f"{number(100 * p_value, 2)} %"


def _numbers(laws: list[TrialLaw]) -> str:
    if len(laws) > 12:
        return ""
    return f" (trial{'s' * (len(laws) != 1)} {', '.join(str(law.row.number) for law in laws)})"

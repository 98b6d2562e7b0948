"""A study and its answer in; whether the search was enough, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.grade import Grade
from kltune.report.controller_blocks import judge, verdict_words
from kltune.report.controllers import Conduct
from kltune.report.recommend import Answer, NoAnswer, Recommendation, Versus, is_baseline
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import ControllerKind
from kltune.trial.words import is_noise, limit_words, origin_words
from kltune.validate import thresholds as limit
from kltune.validate.result import Line

_NAMED = 3
"""Baselines that a sentence names."""


def trials_line(study: StudyRows, answer: Answer) -> Line:
    """Whether there were feasible trials, and enough of them; repeats for the noise floor are none."""
    title, unit = "Feasible trials, and enough", "trials"
    own = [t for t in study.trials if not is_noise(t.origin)]
    count = sum(t.is_candidate for t in own)
    repeats = study.spec.budget.noise_seeds
    ended, budget = sum(t.outcome is not None for t in own), study.spec.budget.trials - repeats
    left = study.spec.budget.trials - sum(t.outcome is not None for t in study.trials)
    threshold = f"fail at 0; warn below {limit.FEWEST_CANDIDATES}, or before the budget of {budget} has ended"
    shown = f"{count} feasible of {ended} ended ({budget} planned)"
    if repeats:
        shown += f"; {repeats} repeat{'s' * (repeats != 1)} for the noise floor not counted"
    if isinstance(answer, NoAnswer):
        action = " ".join(answer.advice)
        return Line(
            "enough_trials", title, Grade.FAIL, 0.0, unit, shown, threshold, answer.reason, action
        )
    grade, meaning, action = Grade.PASS, "The recommendation was chosen among enough trials.", ""
    if left > 0:
        verb = "has" if left == 1 else "have"
        grade = Grade.WARN
        meaning = f"{_trials(left, 'planned ')} {verb} not ended: the answer may change."
        action = "Run the same kltune sweep again to go on."
    elif count < limit.FEWEST_CANDIDATES:
        grade = Grade.WARN
        meaning, action = _few(study, own)
    return Line(
        "enough_trials", title, grade, float(count), unit, shown, threshold, meaning, action
    )


def _few(study: StudyRows, own: Sequence[TrialRow]) -> tuple[str, str]:
    """Why there are few feasible trials, and what to do."""
    count = sum(t.is_candidate for t in own)
    complete = [t for t in own if t.is_candidate or t.is_feasible is False]
    more = "Run more trials (budget.trials)."
    contest = "the best of them had hardly a contest"
    if len(complete) > count:
        return (
            f"Only {count} of {len(complete)} complete trials respect {limit_words(study.spec.objective)}: {contest}.",
            "Move the range of search.beta up, or run more trials (budget.trials).",
        )
    if len(own) > count:
        return f"Only {count} of {_trials(len(own))} ran to the end: {contest}.", more
    return f"All {_trials(count)} are feasible, but so few that {contest}.", more


def _trials(count: int, what: str = "") -> str:
    return f"{count} {what}trial{'s' * (count != 1)}"


def controller_line(study: StudyRows, answer: Recommendation) -> Line:
    """Whether the recommended controller did anything."""
    row, title = answer.best, "Controller not inert"
    threshold = "warn: inert, or does not hold its target; fail: moves beta the wrong way"
    kind = row.setting.controller
    found = judge(study, row)
    if row.setting.beta == 0 or kind is ControllerKind.FIXED or found is None:
        what = "beta is 0" if row.setting.beta == 0 else f"beta is {kind.value}"
        meaning = f"Nothing steers the KL here ({what}), so nothing can be inert."
        return Line("controller", title, Grade.PASS, None, "×", what, threshold, meaning)
    grade = {Conduct.HOLDS: Grade.PASS, Conduct.WRONG_SIGN: Grade.FAIL}.get(
        found.conduct, Grade.WARN
    )
    meaning = f"Over the trial the controller {_conduct(found.conduct)}: {verdict_words(study, row, found)}."
    action = "" if grade is Grade.PASS else _ACTIONS.get(found.conduct, _WATCH)
    shown = f"beta moved by {found.beta_factor:.3g} ×"
    return Line(
        "controller", title, grade, found.beta_factor, "×", shown, threshold, meaning, action
    )


def _conduct(conduct: Conduct) -> str:
    return "did its work" if conduct is Conduct.HOLDS else "did not do what it is for"


_WATCH = "Compare it with a fixed beta at the value where it ended."
_ACTIONS = {
    Conduct.INERT: "Type it as a fixed beta, or shorten the horizon: in a longer run it would start to act.",
    Conduct.TOO_SHORT: "Train longer before relying on the controller.",
    Conduct.WRONG_SIGN: "Don't use it: check the units of target and KL.",
    Conduct.OSCILLATES: "Lengthen the horizon.",
}


def baselines_line(answer: Recommendation, *, is_confirmed: bool = False) -> Line:
    """Whether known recipes are beaten, on the select prompts; fresh seeds speak in `confirmed_line`."""
    title, unit = "Baselines beaten", "baselines"
    threshold = "warn: one can't be told apart, or none was run; fail: a feasible one is better"
    others = [v for v in answer.baselines if v.row.is_candidate and v.difference is not None]
    left = len(answer.baselines) - len(others)
    if not others:
        return _no_baseline(answer, left, threshold)
    better = [
        v
        for v in others
        if v.difference is not None and v.difference.is_told_apart and v.difference.mean < 0
    ]
    beaten = [
        v
        for v in others
        if v.difference is not None and v.difference.is_told_apart and v.difference.mean > 0
    ]
    tied = [v for v in others if v not in better and v not in beaten]
    shown = f"{len(beaten)} of {len(others)} beaten"
    beyond = f" {left} more did not respect the limit or did not end." if left else ""
    grade, action = Grade.PASS, ""
    meaning = f"Every feasible baseline is told apart from it and lower: {_names(beaten)}.{beyond}"
    if better:
        grade, meaning = Grade.FAIL, f"Told apart and better: {_names(better)}.{beyond}"
        action = "Take the baseline instead."
    elif tied:
        grade, meaning = (
            Grade.WARN,
            f"Can't be told apart on these prompts: {_names(tied)}.{beyond}",
        )
        action = "See the confirmation: it has fresh seeds and the test prompts."
        if not is_confirmed:
            action = "Run kltune confirm: fresh seeds and the test prompts may tell them apart."
    return Line(
        "baselines", title, grade, float(len(beaten)), unit, shown, threshold, meaning, action
    )


def _no_baseline(answer: Recommendation, left: int, threshold: str) -> Line:
    title = "Baselines beaten"
    meaning = "No known recipe and no beta = 0 arm was run to compare with."
    action = "Add baselines to the spec, or search.beta.zero: true."
    if left:
        meaning, action = f"None of the {left} baselines that were run respects the KL limit.", ""
    elif is_baseline(answer.best):
        meaning = (
            f"The recommended setting is itself a baseline: {origin_words(answer.best.origin)}."
        )
        action = "Nothing searched is better than it; the search may have been too short."
    grade = Grade.PASS if left else Grade.WARN
    return Line(
        "baselines", title, grade, None, "baselines", "none feasible", threshold, meaning, action
    )


def _names(versus: list[Versus]) -> str:
    named = [
        f"{origin_words(v.row.origin)} ({v.difference.mean:+.3f} gold)"
        for v in versus[:_NAMED]
        if v.difference is not None
    ]
    more = len(versus) - _NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")

"""A study and its answer in, what opens when a trial is clicked out: facts, curves and commands of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kltune.report.charts.numbers import Short, lean
from kltune.report.charts.panels import thinned
from kltune.report.controller_blocks import judge, verdict_words
from kltune.report.controller_rules import target_words
from kltune.report.document import Sheet
from kltune.report.provenance import export_command, replay_command
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.report.unended import state_words
from kltune.spec.trial import KLUnit
from kltune.trial.words import (
    KL_UNIT,
    beta_unit_words,
    both_units,
    duration,
    limit_words,
    number,
    origin_words,
    score,
    setting_long,
    setting_short,
)

MOST_POINTS = 120
"""Points of one trial's curve."""
_ALL_POINTS = 25_000
"""Points of all trials' curves together, so that a thousand trials stay below 3 MB."""
_FEWEST_POINTS = 20
_LONGEST = 1500
"""Characters of one fact; a traceback may be longer."""

Fact = tuple[str, str]


def sheets(study: StudyRows, answer: Answer) -> tuple[Sheet, ...]:
    """One of every trial, in the order of their numbers."""
    shared = max(_FEWEST_POINTS, _ALL_POINTS // max(1, len(study.trials)))
    most = min(MOST_POINTS, shared)
    return tuple(_sheet(study, row, answer, most) for row in study.trials)


def _sheet(study: StudyRows, row: TrialRow, answer: Answer, most: int) -> Sheet:
    is_best = isinstance(answer, Recommendation) and row.number == answer.best.number
    facts = [
        *_asked(study, row),
        *_ended(study, row, answer),
        *_measured(row),
        *_steered(study, row),
        *_used(study, row),
    ]
    return Sheet(
        number=row.number,
        title=f"Trial {row.number}: {setting_short(row.setting, study.spec.kl_unit)}",
        facts=tuple((label, _cut(text)) for label, text in facts if text),
        curves=_curves(row, study.spec.kl_unit, most),
        commands=(replay_command(study, row), export_command(study, row, is_recommended=is_best)),
        kl_unit=KL_UNIT[study.spec.kl_unit],
        beta_unit=beta_unit_words(
            study.spec.beta_unit, study.spec.trainer.credit, row.setting.penalty
        ),
    )


def _asked(study: StudyRows, row: TrialRow) -> list[Fact]:
    spec = study.spec
    setting = setting_long(row.setting, spec.beta_unit, spec.kl_unit, spec.trainer.credit)
    return [
        ("Setting", f"{setting}, seed {row.setting.seed}"),
        ("From", origin_words(row.origin)),
    ]


def _ended(study: StudyRows, row: TrialRow, answer: Answer) -> list[Fact]:
    """How it ended in the guard's own words, its value, and where it stands among the others."""
    planned = study.spec.trainer.steps
    name = state_words(study, row) if row.reason is None else row.reason.value
    ended = f"{name}, {row.steps_run} of {planned} steps"
    facts = [("How it ended", f"{ended}: {row.detail}" if row.detail else ended)]
    if row.value is not None:
        facts.append(("Value", f"{score(row.value)} gold ({study.spec.objective.metric})"))
    if row.is_feasible is not None:
        where = "within" if row.is_feasible else "outside"
        facts.append(("Limits", f"{where} {limit_words(study.spec.objective)}"))
    if isinstance(answer, Recommendation):
        group = answer.ranking.group_of(row)
        if row.number == answer.best.number:
            facts.append(("Standing", "recommended"))
        elif group is not None:
            tied = "may be the best as well" if group == 1 else "told apart from the best"
            facts.append(("Standing", f"group {group}: {tied}"))
    facts += [
        (f"Warned by {w.guard}", f"steps {w.first_step} to {w.step}: {w.detail}")
        for w in row.warnings
    ]
    if row.score_errors is not None:
        found = row.score_errors
        words = (
            f"{found.count} completion(s) in {found.steps} step(s) and {found.judged} of evaluations, "
            "counted as unscored"
        )
        facts.append(("Errors of the proxy", f"{words}; {'; '.join(found.examples)}"))
    return facts


def _measured(row: TrialRow) -> list[Fact]:
    """Gold with its standard error over prompts, proxy and KL, at the start, the peak and the end."""
    named = (("start", row.start), ("peak", row.peak), ("end", row.final))
    facts: list[Fact] = []
    for name, point in named:
        if point is None or (name == "end" and row.peak is not None and point is row.peak):
            continue
        step = "" if name == "start" else f", step {point.step}"
        facts.append((f"At the {name}{step}", _point_words(point)))
    return facts


def _point_words(point: Checkpoint) -> str:
    scores = f"gold {score(point.gold, point.gold_se)}, proxy {score(point.proxy, point.proxy_se)} (± s.e.)"
    return f"{scores}; KL {both_units(point.kl_token, point.kl_seq)}"


def _used(study: StudyRows, row: TrialRow) -> list[Fact]:
    spec = study.spec
    facts: list[Fact] = []
    if row.beta_range is not None and row.setting.beta > 0:
        unit = beta_unit_words(spec.beta_unit, spec.trainer.credit, row.setting.penalty)
        facts.append(("Beta used", f"{_range(*row.beta_range)} {unit}"))
        coefficients = [c for c in row.curve.coefficient if math.isfinite(c)]
        if coefficients:
            facts.append(("Native coefficient", _range(min(coefficients), max(coefficients))))
    if row.seconds > 0:
        facts.append(("Time", f"{duration(row.seconds)} in its slot"))
    return facts


def _steered(study: StudyRows, row: TrialRow) -> list[Fact]:
    """The target of a controller that has one, and whether KL was held there."""
    found = judge(study, row)
    if found is None:
        return []
    return [("Target", f"{target_words(study, row)}; {verdict_words(study, row, found)}")]


def _range(low: float, high: float) -> str:
    same = number(low) == number(high)
    return number(low) if same else f"{number(low)} to {number(high)}"


def _cut(text: str) -> str:
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]} … ({left:,} more characters)"


def _curves(row: TrialRow, unit: KLUnit, most: int) -> Mapping[str, Sequence[Short]]:
    """Columns of the evaluations (the one that it is judged by always among them) and of the steps."""
    points = thinned(row.checkpoints, most)
    if row.peak is not None and row.peak not in points:
        points = sorted([*points, row.peak], key=lambda point: point.step)
    kl = row.curve.kl_token if unit is KLUnit.TOKEN else row.curve.kl_seq
    curve = row.curve
    steps = thinned(list(zip(curve.step, kl, curve.beta, curve.target, strict=True)), most)
    has_target = any(math.isfinite(target) for target in curve.target)
    return {
        "eval_step": [point.step for point in points],
        "gold": lean(point.gold for point in points),
        "gold_se": lean(point.gold_se for point in points),
        "proxy": lean(point.proxy for point in points),
        "proxy_se": lean(point.proxy_se for point in points),
        "eval_kl": lean(point.kl(unit) for point in points),
        "step": [step for step, *_ in steps],
        "kl": lean(kl for _, kl, _, _ in steps),
        "beta": lean(beta for _, _, beta, _ in steps),
        **({"target": lean(target for *_, target in steps)} if has_target else {}),
    }

"""A study's trials in; the section on how their controllers behaved, and its data, out."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from kltune.report.controllers import Behaviour, Conduct, Lag, behaviour
from kltune.report.document import Block, Bullets, Grid, Paragraph
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.control import threshold_rule
from kltune.spec.trial import ControllerKind
from kltune.trial.words import MISSING, number, setting_short

_HEADER = (
    "trial",
    "setting",
    "verdict",
    "moves the way KL asks",
    "KL answers beta after",
    "beta: highest / lowest",
    "crossings of the target",
    "period (steps)",
    "swing (factor)",
    "KL / target over the last steps",
)

_MEANING = {
    Conduct.TOO_SHORT: "Fewer than 10 steps with a target say nothing",
    Conduct.WRONG_SIGN: "Beta fell where KL was above its target and rose where it was below",
    Conduct.INERT: "Beta moved by less than 10 %, so these trials are like ones with a fixed beta",
    Conduct.NEVER_ARRIVES: "KL never came within 20 % of its target",
    Conduct.OSCILLATES: "KL swung about its target; a longer horizon, smaller or rarer moves calm it",
    Conduct.DOES_NOT_HOLD: "KL came to its target and was more than 25 % away from it over the last steps",
    Conduct.HOLDS: "KL was within 25 % of its target over the last steps",
}

_BESIDE = (Conduct.DOES_NOT_HOLD, Conduct.NEVER_ARRIVES)
"""Of a controller that swings or has the wrong sign the end alone says nothing."""

_NOTE = (
    "From the training steps. Moves the way KL asks: share of the moves of beta whose sign is that of KL − target "
    "at the step before. KL answers beta after: the steps at which a change of log beta is followed most clearly by "
    "the opposite change of log KL, with that correlation; “can't be told” where it doesn't stand out of what "
    "unrelated series give. One slow approach without a swing gives too long an answer. Crossings: from 20 % on one "
    "side to 20 % on the other, after the first arrival, of the mean over 5 steps; a rule with a dead band counts from the "
    "band's edges. Swing: the factor by which KL goes up and down. KL / target over the last steps: the median over the trial's last "
    "tenth of the steps, 5 or more, of the KL measured before each step's update (report.json: end_ratio, over end_steps); a "
    "verdict rests on it. The KL at the stop is an evaluation's, so it may be another one."
)

_MOST_NAMED = 12


def controller_blocks(study: StudyRows) -> tuple[Block, ...]:
    """Verdicts in words, the table, and how to read it; empty where every beta was fixed."""
    judged = [(row, found) for row in study.trials if (found := judge(study, row)) is not None]
    scheduled = [row for row in study.trials if _is_scheduled(row)]
    if not judged and not scheduled:
        return ()
    items = [
        f"{conduct.value}: {_trials(rows)}. {_MEANING[conduct]}."
        for conduct in Conduct
        if (rows := [row for row, found in judged if found.conduct is conduct])
    ]
    if scheduled:
        items.append(f"scheduled: {_trials(scheduled)}. Beta follows the steps, whatever KL does.")
    blocks: list[Block] = [Bullets(tuple(item[0].upper() + item[1:] for item in items))]
    if judged:
        cells = tuple(_cells(study, row, found) for row, found in judged)
        blocks += [
            Grid(_HEADER, cells, numeric=frozenset((0, 3, 5, 6, 7, 8, 9))),
            Paragraph(_note(study), "note"),
        ]
    return tuple(blocks)


def controller_data(study: StudyRows, row: TrialRow) -> dict[str, Any] | None:
    """The same for one trial as plain data; none for a controller that steers nothing."""
    found = judge(study, row)
    if found is None:
        return None
    data = asdict(found)
    del data["arrival"]
    if found.lag is not None:
        data["lag"] = {**data["lag"], "is_told": found.lag.is_told}
    return {
        **data,
        "verdict": found.conduct.value,
        "arrival_step": _arrival_step(study, row, found),
    }


def judge(study: StudyRows, row: TrialRow) -> Behaviour | None:
    """What the trial's controller did; none where it has no target or no step is on record."""
    kind = row.setting.controller
    if not kind.has_target or not row.curve.step:
        return None
    band = (1.0, 1.0)
    if kind.is_threshold:
        rule = threshold_rule(kind, study.spec.control)
        band = (rule.below, rule.above)
    return behaviour(_kl(study, row), row.curve.beta, row.curve.target, band)


def missed_words(study: StudyRows, row: TrialRow) -> str:
    """How far from its target a controller's KL ended, for a sentence that names it; empty where it held it or nothing is told."""
    found = judge(study, row)
    if found is None or found.conduct not in _BESIDE:
        return ""
    return f", which KL missed (median over {_last_steps(found)}: {number(found.end_ratio)} × that)"


def verdict_words(study: StudyRows, row: TrialRow, found: Behaviour) -> str:
    """The verdict with the number that it rests on."""
    end = f"KL was {number(found.end_ratio)} × target, median over {_last_steps(found)}"
    right = MISSING if found.right_share is None else f"{100 * found.right_share:.0f} %"
    words = {
        Conduct.TOO_SHORT: f"{found.num_steps} steps with a target",
        Conduct.WRONG_SIGN: f"{right} of {found.num_moves} moves of beta went the way KL asked",
        Conduct.INERT: f"beta moved by a factor of {found.beta_factor:.3g} at most; {end}",
        Conduct.NEVER_ARRIVES: end,
        Conduct.OSCILLATES: (
            f"{found.swings.crossings} crossings of the target after step {_arrival_step(study, row, found)}, "
            f"period {number(found.swings.period)} steps, up and down by a factor of {found.swings.amplitude:.2f}"
        ),
        Conduct.DOES_NOT_HOLD: end,
        Conduct.HOLDS: end,
    }
    return f"{found.conduct.value} ({words[found.conduct]})"


def _last_steps(found: Behaviour) -> str:
    return f"the trial's last {found.end_steps} steps"


def _note(study: StudyRows) -> str:
    if study.spec.trainer.reference.every is None:
        return _NOTE
    return f"{_NOTE} KL here is that to the moving reference (kl/anchor), which the controllers act on."


def _is_scheduled(row: TrialRow) -> bool:
    return row.setting.controller is ControllerKind.SCHEDULE and bool(row.curve.step)


def _kl(study: StudyRows, row: TrialRow) -> tuple[float, ...]:
    return row.curve.held(study.spec.kl_unit)


def _arrival_step(study: StudyRows, row: TrialRow, found: Behaviour) -> int | None:
    """The step of the record; ``behaviour`` counts those with a target."""
    if found.arrival is None:
        return None
    columns = zip(row.curve.step, _kl(study, row), row.curve.beta, row.curve.target, strict=True)
    seen = [
        step
        for step, kl, beta, target in columns
        if math.isfinite(kl + beta + target) and beta > 0 and target > 0
    ]
    return seen[found.arrival]


def _trials(rows: list[TrialRow]) -> str:
    numbers = [str(row.number) for row in rows]
    more = len(numbers) - _MOST_NAMED
    named = ", ".join(numbers[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"trial {named}" if len(numbers) == 1 else f"trials {named}"


def _cells(study: StudyRows, row: TrialRow, found: Behaviour) -> tuple[str, ...]:
    swings = found.swings
    share = found.right_share
    return (
        str(row.number),
        setting_short(row.setting, study.spec.kl_unit),
        verdict_words(study, row, found),
        MISSING if share is None else f"{100 * share:.0f} % of {found.num_moves}",
        lag_words(found.lag),
        f"{found.beta_factor:.3g}",
        str(swings.crossings),
        number(swings.period),
        MISSING if swings.period is None else f"{swings.amplitude:.2f}",
        number(found.end_ratio),
    )


def lag_words(lag: Lag | None) -> str:
    """How late KL answers beta, or why that can't be told."""
    if lag is None:
        return "can't be told: too few steps or moves"
    value = f"r {lag.correlation:.2f}, noise {lag.noise:.2f}".replace("-", "−")
    steps = "1 step" if lag.steps == 1 else f"{lag.steps} steps"
    if lag.is_told:
        return f"{steps} ({value})"
    why = ""
    if -lag.correlation > lag.noise:
        why = (
            f"; {steps} is the most looked at" if lag.is_longest else "; as strong at the same step"
        )
    return f"can't be told ({value}{why})"

"""A spec in; out: controllers that by arithmetic can't move beta, or can't hold KL still.

Beta of a step comes from the KL of the steps before it, so a move after the last step moves
nothing. A controller is inert where it can't move beta by a factor of ``INERT_BELOW`` in a
trial. It can't hold KL where it moves beta by more than KL could have answered: KL answers
over several steps, since it follows the weights, which follow the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from kltune.spec.control import ThresholdSpec, threshold_rule, warmup_steps
from kltune.spec.problems import Problem
from kltune.spec.study import StudySpec
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind

INERT_BELOW: Final = 1.1
"""A controller is inert when it can't move beta by this factor within a trial."""

_FASTEST_GAIN: Final = 1.0
"""n / horizon above which the proportional controller moves beta by more than its own error."""

_FEW: Final = 3
"""Fewer warm-up steps than this give a median that hangs on the first, whose KL is 0."""

_EVEN: Final = 0.005
"""An up and a down whose product is nearer to 1 than this are meant to cancel."""


def controller_doubts(spec: StudySpec) -> list[Problem]:
    """Controllers that are inert or restless, and options that have no time to act."""
    kinds = [ControllerKind(str(value)) for value in spec.search.controller.values()]
    doubts: list[Problem] = []
    if ControllerKind.PROPORTIONAL in kinds:
        doubts += [*_horizon_doubts(spec), *_gain_doubts(spec)]
    for kind in kinds:
        if kind.is_threshold:
            doubts += _threshold_doubts(spec, kind)
    if ControllerKind.SCHEDULE in kinds:
        doubts += _schedule_doubts(spec)
    if any(kind.has_target for kind in kinds):
        doubts += _option_doubts(spec)
    return doubts


def inert_horizon(rows: int, steps: int) -> float:
    """The horizon in sequences above which the proportional controller is inert.

    Beta moves by at most 1 + 0.2 x rows / horizon per step (Ziegler et al. 2019), so by that to
    the power of ``steps`` in a trial.
    """
    per_step = INERT_BELOW ** (1 / steps) - 1
    return CONTROLLER_CLIP * rows / per_step


def _warmup(spec: StudySpec) -> int:
    """Steps at the start in which a measured target holds beta still."""
    calibrate = spec.control.calibrate
    return 0 if calibrate is None else warmup_steps(calibrate, spec.trainer.steps)


def _horizon_doubts(spec: StudySpec) -> Iterator[Problem]:
    horizon, rows = spec.search.horizon, spec.trainer.rows
    steps = spec.trainer.steps - _warmup(spec)
    if horizon is None or steps < 1:
        return
    bound = inert_horizon(rows, steps)
    low, high = min(horizon.numbers()), max(horizon.numbers())
    if high <= bound:
        return
    which = "every value" if low > bound else f"values above {bound:,.0f}"
    most = 100 * ((1 + CONTROLLER_CLIP * rows / high) ** steps - 1)
    text = (
        f"{which} leave the proportional controller inert: at {high:,g} sequences it can raise beta by "
        f"{most:.1f} % at most in {steps} steps of {rows} completions; for 10 % the horizon must be "
        f"{bound:,.0f} sequences or less"
    )
    yield Problem("search.horizon", text)


def _gain_doubts(spec: StudySpec) -> Iterator[Problem]:
    horizon, rows = spec.search.horizon, spec.trainer.rows
    lowest = None if horizon is None else horizon.smallest()
    if lowest is None:
        return
    gain = rows / lowest
    if gain > _FASTEST_GAIN:
        text = (
            f"at {lowest:,g} sequences the gain n / horizon is {gain:.2g} ({rows} completions per step): each "
            f"step moves beta by that many times the error of KL, up to {100 * CONTROLLER_CLIP * gain:.0f} %; KL "
            "answers beta only over several steps, so beta overshoots and KL swings about its target; "
            f"from {rows:,} sequences on a step corrects no more than the error"
        )
        yield Problem("search.horizon", text)
    late = _lag(spec.control.ema)
    if gain * late > 1 and gain <= _FASTEST_GAIN:
        text = (
            f"the smoothed KL is {late:.3g} steps late, in which the proportional controller at "
            f"{lowest:,g} sequences corrects {gain * late:.2g} times the error it sees: beta overshoots and "
            f"KL swings; keep lag x n / horizon at 1 or below (ema {1 / (1 + gain):.2g} or horizon "
            f"{rows * late:,.0f})"
        )
        yield Problem("control.ema", text)


def _threshold_doubts(spec: StudySpec, kind: ControllerKind) -> Iterator[Problem]:
    rule = threshold_rule(kind, spec.control)
    own = kind is ControllerKind.THRESHOLD
    yield from _look_doubts(spec, kind, rule)
    yield from _swing_doubts(spec, kind, rule)
    pair = rule.up * rule.down
    if abs(pair - 1) > _EVEN:
        text = (
            f"{_called(kind)} is uneven: a rise by {rule.up:g} and a fall by {rule.down:g} leave beta at "
            f"{pair:.3g} of where it was, {pair**10:.2g} after ten pairs, though KL was as often above as below"
        )
        yield Problem("control.threshold" if own else "search.controller", text)


def _look_doubts(spec: StudySpec, kind: ControllerKind, rule: ThresholdSpec) -> Iterator[Problem]:
    """A rule that looks too seldom to act within the trial."""
    steps, warmup = spec.trainer.steps, _warmup(spec)
    looks = max(0, (steps - 1) // rule.every - warmup // rule.every)
    step = max(rule.up, 1 / rule.down)
    if step**looks >= INERT_BELOW:
        return
    after = f" after a warm-up of {warmup}" if warmup else ""
    what = (
        f"never acts: it looks every {rule.every} steps, and no look comes before the last of {steps} "
        f"steps{after}"
        if looks == 0
        else f"is inert: {looks} look(s) in {steps} steps{after} move beta by a factor of {step**looks:.3g} "
        f"at most, less than {INERT_BELOW:g}"
    )
    own = kind is ControllerKind.THRESHOLD
    path = "control.threshold.every" if own else "search.controller"
    yield Problem(path, f"{_called(kind)} {what}")


def _swing_doubts(spec: StudySpec, kind: ControllerKind, rule: ThresholdSpec) -> Iterator[Problem]:
    """A rule whose moves carry KL from one side of its band to the other."""
    own = kind is ControllerKind.THRESHOLD
    step, band = max(rule.up, 1 / rule.down), rule.above / rule.below
    if band < step * (1 - 1e-9):
        text = (
            f"{_called(kind)} can't rest: its band from {rule.below:.3g} to {rule.above:.3g} x target spans a "
            f"factor of {band:.3g}, and one move of beta is {step:.3g}; where KL falls as beta rises (as 1 / beta) "
            "a move from one side lands on the other, and the next one comes back"
        )
        yield Problem("control.threshold" if own else "search.controller", text)
    per_step = step ** (1 / rule.every)
    if per_step > 1 + CONTROLLER_CLIP * _FASTEST_GAIN + 1e-9:
        text = (
            f"{_called(kind)} moves beta by up to {per_step:.3g} per step (it looks every {rule.every}); KL answers "
            "beta only over several steps, so it moves again before the last move is felt, overshoots and swings; "
            f"every {math.ceil(math.log(step) / math.log(1 + CONTROLLER_CLIP))} steps or more keeps it within "
            f"{1 + CONTROLLER_CLIP:g} per step"
        )
        yield Problem("control.threshold.every" if own else "search.controller", text)
    late = _lag(spec.control.ema)
    if late >= rule.every and per_step**late > band:
        text = (
            f"the smoothed KL is {late:.3g} steps late, in which {_called(kind)} moves beta by {per_step**late:.3g}, "
            f"more than its band of {band:.3g} spans: it overshoots and swings"
        )
        yield Problem("control.ema", text)


def _schedule_doubts(spec: StudySpec) -> Iterator[Problem]:
    factors = [factor for _, factor in spec.control.schedule]
    low, high = min(factors), max(factors)
    if high == 0 or (low > 0 and high / low < INERT_BELOW):
        stages = "one stage" if len(factors) == 1 else f"stages from {low:g} to {high:g}"
        text = (
            f"{stages}: the controller `schedule` never moves beta by {INERT_BELOW:g}, so it is `fixed` "
            "by another name"
        )
        yield Problem("control.schedule", text)
    yield from _late_stages(spec, "schedule", spec.control.schedule)


def _option_doubts(spec: StudySpec) -> Iterator[Problem]:
    """Options of controllers that steer KL."""
    control, steps = spec.control, spec.trainer.steps
    yield from _late_stages(spec, "targets", control.targets)
    seen = 1 - control.ema**steps
    if seen < 0.5:
        text = (
            f"too slow to answer: {steps} steps at {control.ema:g} take in {100 * seen:.0f} % of a lasting change "
            f"of KL; half of it within the trial needs {0.5 ** (1 / steps):.3g} or less"
        )
        yield Problem("control.ema", text)
    warmup = _warmup(spec)
    if control.calibrate is not None and warmup > steps - 2:
        text = f"a warm-up of {warmup} of {steps} steps leaves no move of beta: the target is measured, not used"
        yield Problem("control.calibrate.share", text)
    elif control.calibrate is not None and warmup < _FEW:
        text = (
            f"the target is measured in {warmup} step(s), and the first has KL 0, since the policy still is the "
            f"reference; {_FEW} steps or more need a share of {_FEW / steps:.2g}"
        )
        yield Problem("control.calibrate.share", text)
    low, high = control.beta_min, control.beta_max
    if low is not None and high is not None and high / low < INERT_BELOW:
        text = (
            f"beta_min and beta_max leave a factor of {high / low:.3g}: every controller is inert"
        )
        yield Problem("control.beta_max", text)


def _late_stages(
    spec: StudySpec, name: str, stages: tuple[tuple[float, float], ...]
) -> Iterator[Problem]:
    steps = spec.trainer.steps
    last = (steps - 1) / steps
    for share, _ in stages:
        if share > last:
            text = f"the stage from {share:g} on never comes: the last of {steps} steps begins at {last:.3g}"
            yield Problem(f"control.{name}", text)


def _lag(ema: float) -> float:
    """Mean age in steps of what an EMA holds."""
    return ema / (1 - ema)


def _called(kind: ControllerKind) -> str:
    return "the rule" if kind is ControllerKind.THRESHOLD else f"`{kind.value}`"

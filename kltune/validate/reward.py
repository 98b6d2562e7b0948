"""The recommended trial's evaluations and kept completions in; whether gold still goes with proxy out, as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from kltune.confirm.result import ConfirmResult
from kltune.grade import Grade
from kltune.metrics.rows import Row
from kltune.report.compare import CONFIDENCE, prompt_scores
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.trial.words import number
from kltune.validate import thresholds as limit
from kltune.validate.result import Line

Array = NDArray[np.float64]


def score_kl_line(samples: Sequence[Row]) -> Line:
    """Whether completions that score high are those far from the reference."""
    title = "Score and KL of completions"
    threshold = f"warn above {limit.SCORE_KL_WARN:g} where the interval leaves out 0"
    table = _by_step(samples, ("proxy", "gold", "kl_seq"))
    count, groups = len(table), len({int(row["step"]) for row in samples})
    if count - groups < limit.FEWEST_SAMPLES:
        meaning = f"Only {count} completions with score and KL were kept."
        action = "Raise evaluate.keep in the spec to see more."
        return Line(
            "score_kl",
            title,
            Grade.WARN,
            None,
            "correlation",
            "not told",
            threshold,
            meaning,
            action,
        )
    proxy, gold = (_correlation(table[:, i], table[:, 2]) for i in (0, 1))
    low, high = _interval(proxy, count - groups)
    is_bought = low > 0 and proxy > limit.SCORE_KL_WARN
    grade = Grade.WARN if is_bought else Grade.PASS
    shown = f"{proxy:+.2f} ({low:+.2f} to {high:+.2f})"
    told = f"over {count} completions of the evaluations around the stop; gold and KL: {gold:+.2f}"
    meaning = (
        f"The proxy likes completions that are far from the reference ({told}): KL is what buys the score."
        if is_bought
        else f"High scores don't go with a high KL ({told})."
    )
    action = "Read those completions: are they better, or only liked?" if is_bought else ""
    return Line("score_kl", title, grade, proxy, "correlation", shown, threshold, meaning, action)


def parted_line(row: TrialRow, stop: tuple[int, int]) -> Line:
    """Whether gold has turned while the proxy rises, at the recommended stop (first to last step)."""
    title = "Gold and proxy not parted at the stop"
    threshold = (
        f"fail: gold falls by more than {limit.RISE_ERRORS:g} standard errors while proxy rises; "
        "warn: only late in the window to stop in, or both fall"
    )
    after = [c for c in row.checkpoints if c.step > 0 and math.isfinite(c.gold + c.proxy)]
    end = next((c for c in reversed(after) if c.step <= stop[1]), None)
    before = [] if end is None else [c for c in row.checkpoints if c.step < end.step]
    if end is None or not before:
        return Line(
            "parted", title, Grade.WARN, None, "gold", "not told", threshold, "Too few evaluations."
        )
    top = max((c for c in before if math.isfinite(c.gold)), key=lambda c: c.gold, default=end)
    gold, error = _change(top, end)
    proxy = end.proxy - top.proxy
    is_fall = gold < -limit.RISE_ERRORS * error
    shown = f"gold {gold:+.3f} ± {error:.3f}, proxy {proxy:+.3f} from step {top.step} to {end.step}"
    grade, meaning, action = Grade.PASS, "", ""
    if is_fall and proxy > 0 and top.step >= stop[0]:
        grade = Grade.WARN
        meaning = f"Late in the window to stop in they part: by step {end.step} gold has fallen while the proxy rose."
        action = f"Stop at step {top.step}, early in the window."
    elif is_fall and proxy > 0:
        grade = Grade.FAIL
        meaning = f"By step {end.step} gold has fallen clearly while the proxy rose: the proxy is being gamed."
        action = f"Stop at step {top.step} or before, or raise beta."
    elif is_fall:
        grade, meaning = Grade.WARN, f"Gold falls before step {end.step}, and so does the proxy."
        action = f"Stop at step {top.step} or before."
    else:
        meaning = _together(gold, error, proxy, end.step) + _afterwards(after, end)
        if end is after[-1] and gold > 0:
            grade = Grade.WARN
            meaning = "The stop is the last evaluation and gold is highest there: the peak may lie further on."
            action = "Train longer (trainer.steps) to see the turn."
    return Line("parted", title, grade, gold, "gold", shown, threshold, meaning, action)


def _together(gold: float, error: float, proxy: float, step: int) -> str:
    """What gold did beside the proxy up to ``step``, where it did not clearly fall."""
    if not gold > limit.RISE_ERRORS * error:
        way = "rose" if proxy > 0 else "fell" if proxy < 0 else "stayed"
        return (
            f"Gold doesn't tell: up to step {step} it moved by no more than {limit.RISE_ERRORS:g} standard errors, while "
            f"the proxy {way}."
        )
    if proxy > 0:
        return f"Gold goes with the proxy: both rose up to step {step}."
    return f"Gold rose up to step {step} though the proxy did not."


def _afterwards(after: Sequence[Checkpoint], end: Checkpoint) -> str:
    later = [c for c in after if c.step > end.step]
    lowest = min(later, key=lambda c: c.gold, default=None)
    if lowest is None:
        return ""
    gold, error = _change(end, lowest)
    if gold < -limit.RISE_ERRORS * error and lowest.proxy > end.proxy:
        return (
            f" Beyond it they part: gold {gold:+.3f} by step {lowest.step} while the proxy gains "
            f"{lowest.proxy - end.proxy:+.3f}. The stop is part of the setting."
        )
    return ""


def gain_line(study: StudyRows, row: TrialRow, confirmed: ConfirmResult | None = None) -> Line:
    """Whether training was worth it at all: gold at the stop against the start.

    ``confirmed``: of this very setting; its fresh seeds and test prompts speak where it has them. Without,
    the select prompts do, corrected for the choice of step.
    """
    title = "Gold above the start"
    threshold = "warn: the 95 % interval holds 0; fail: it lies below 0"
    on_test = _gain_on_test(confirmed)
    if on_test is not None:
        return _gain(*on_test, title, threshold)
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
    start = row.start
    if scores is None or start is None or len(start.gold_by_prompt) != len(scores):
        meaning = "No evaluation before training to compare with."
        return Line("gold_gain", title, Grade.WARN, None, "gold", "not told", threshold, meaning)
    gains = scores - np.array(start.gold_by_prompt)
    mean = float(gains.mean())
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(gains) - 1)) * error
    beyond = f"these {len(gains)} select prompts vary by (one seed, which also chose the setting)"
    return _gain((mean, mean - half, mean + half), "select prompts", beyond, title, threshold)


def _gain_on_test(
    confirmed: ConfirmResult | None,
) -> tuple[tuple[float, float, float], str, str] | None:
    """(gain with its interval, where, beyond what it is); none where the start was not judged on test."""
    found = (
        next((a for a in confirmed.main.against if a.role == "start"), None) if confirmed else None
    )
    if confirmed is None or found is None:
        return None
    beyond = f"{len(confirmed.seeds)} fresh seeds and {confirmed.num_prompts} test prompts vary by"
    return (found.difference, found.low, found.high), "test prompts", beyond


def _gain(
    found: tuple[float, float, float], where: str, beyond: str, title: str, threshold: str
) -> Line:
    mean, low, high = found
    grade = Grade.FAIL if high < 0 else Grade.PASS if low > 0 else Grade.WARN
    shown = f"{mean:+.3f} ({low:+.3f} to {high:+.3f}) gold on {where}"
    words = {
        Grade.PASS: f"The setting makes the model better by gold, beyond what {beyond}.",
        Grade.WARN: f"It can't be told whether training made the model better: the gain is within what {beyond}.",
        Grade.FAIL: f"Training made the model worse by gold, beyond what {beyond}.",
    }
    action = (
        ""
        if grade is Grade.PASS
        else "Don't scale this up: look for a better setting or proxy first."
    )
    return Line("gold_gain", title, grade, mean, "gold", shown, threshold, words[grade], action)


@dataclass(frozen=True, slots=True)
class Readings:
    """Gold of the same completions, read twice now and once during the trial."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    recorded: tuple[float, ...]


def repeat_line(found: Readings | str) -> Line:
    """Whether gold says the same of the same completion; a text says why it was not read again."""
    title = "Gold repeats itself"
    threshold = "warn above 0; fail at 1 × the spread between completions, or where the record says otherwise"
    unit = "× spread"
    if isinstance(found, str):
        meaning = f"Gold was not read a second time: {found}."
        return Line(
            "gold_repeats", title, Grade.WARN, None, unit, "not checked", threshold, meaning
        )
    first, second, recorded = (
        np.array(x, dtype=float) for x in (found.first, found.second, found.recorded)
    )
    if len(first) < 2 or not np.isfinite(first + second).all():
        meaning = "Gold could not score every kept completion, or fewer than two were kept."
        action = "Gold must score every completion: look at the function."
        return Line(
            "gold_repeats", title, Grade.FAIL, None, unit, "not told", threshold, meaning, action
        )
    spread = float(first.std(ddof=1))
    noise = math.sqrt(float(((first - second) ** 2).mean()) / 2)
    share = noise / spread if spread > 0 else (0.0 if noise == 0 else math.inf)
    if noise == 0:
        return _unmoved(recorded, first, "the same to the last digit", threshold)
    shown = f"{number(share, 2)} × the spread between completions ({number(noise)} of {number(spread)} gold)"
    grade = Grade.FAIL if share >= limit.REPEAT_FAIL else Grade.WARN
    meaning = (
        f"Two readings of the same {len(first)} completions differ by a standard deviation of {number(noise)} "
        "gold: gold itself is noisy, on top of seeds and prompts."
    )
    action = "Average several readings in the gold function, or judge at temperature 0."
    return Line("gold_repeats", title, grade, share, unit, shown, threshold, meaning, action)


def _unmoved(recorded: Array, first: Array, shown: str, threshold: str) -> Line:
    """Gold is a rule now; the record must agree with it."""
    title, unit = "Gold repeats itself", "× spread"
    off = float(np.nanmax(np.abs(recorded - first), initial=0.0))
    if off <= 1e-6:
        meaning = f"Read twice, gold of {len(first)} kept completions is the same, and the same as on record."
        return Line("gold_repeats", title, Grade.PASS, 0.0, unit, shown, threshold, meaning)
    shown = f"up to {number(off)} gold off the record"
    meaning = (
        "Gold gives the same twice, but not what this study recorded: the study "
        "was judged by another gold than the one at hand."
    )
    action = "Put the gold function back, or run the study again under the new one."
    return Line("gold_repeats", title, Grade.FAIL, off, "gold", shown, threshold, meaning, action)


def _change(before: Checkpoint, after: Checkpoint) -> tuple[float, float]:
    """(gold after - before, standard error over paired prompts)."""
    pair = (np.array(before.gold_by_prompt), np.array(after.gold_by_prompt))
    if len(pair[0]) != len(pair[1]) or len(pair[0]) < 2:
        return after.gold - before.gold, math.hypot(before.gold_se, after.gold_se)
    paired = pair[1] - pair[0]
    return after.gold - before.gold, float(paired.std(ddof=1)) / math.sqrt(len(paired))


def _by_step(samples: Sequence[Row], names: Sequence[str]) -> Array:
    """Columns with each evaluation's mean taken out, so that training time alone correlates nothing."""
    groups: dict[int, list[list[float]]] = {}
    for row in samples:
        values = [_finite(row, name) for name in names]
        if not any(map(math.isnan, values)):
            groups.setdefault(int(row["step"]), []).append(values)
    parts = [np.array(g) - np.mean(g, axis=0) for g in groups.values()]
    return np.concatenate(parts) if parts else np.empty((0, len(names)))


def _finite(row: Mapping[str, object], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def _correlation(a: Array, b: Array) -> float:
    scale = math.sqrt(float((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / scale if scale > 0 else 0.0


def _interval(r: float, degrees: int) -> tuple[float, float]:
    """95 % by Fisher's z."""
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) / math.sqrt(max(1, degrees - 2))
    z = math.atanh(max(-0.999999, min(0.999999, r)))
    return math.tanh(z - half), math.tanh(z + half)

"""Gold of a run's checkpoints in; a significant drop below the best of them out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from scipy import stats

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One evaluation after step 0."""

    step: int
    gold_by_prompt: tuple[float, ...]
    """Mean gold of each prompt, the same prompts in the same order at every checkpoint."""
    kl: float
    """In ``kl_unit`` of the caller."""
    is_allowed: bool
    """Whether it may be chosen; only such a one is a peak to fall from."""

    @property
    def gold(self) -> float:
        """Mean over prompts."""
        return fmean(self.gold_by_prompt)


@dataclass(frozen=True, slots=True)
class _Drop:
    best: Checkpoint
    now: Checkpoint
    drop: float
    se: float
    chance: float
    """Already times the number of checkpoints that the best was chosen from."""
    candidates: int


def gold_drop(
    checkpoints: Sequence[Checkpoint],
    *,
    chance: float = 0.01,
    kl_factor: float = 1.0,
    patience: int = 2,
    unit: str = "nats/token",
) -> Symptom | None:
    """Gold below the best earlier allowed checkpoint at each of the last ``patience`` checkpoints, at no less KL.

    No less: at least ``kl_factor`` times that checkpoint's. Each is compared with the best before it: paired
    over prompts, one-sided t-test, times the number of checkpoints that the best was chosen from
    (Bonferroni), at most ``chance``. ``checkpoints`` in order of steps, step 0 left out, healthy only.
    ``unit`` of their KL.
    """
    if len(checkpoints) <= patience:
        return None
    found: list[_Drop] = []
    for end in range(len(checkpoints) - patience, len(checkpoints)):
        drop = _drop(checkpoints[: end + 1], kl_factor)
        if drop is None or drop.chance > chance:
            return None
        found.append(drop)
    last = found[-1]
    detail = (
        f"gold fell from {last.best.gold:.3g} at step {last.best.step} (kl {last.best.kl:.3g} {unit}), the best "
        f"checkpoint, to {last.now.gold:.3g} at step {last.now.step} (kl {last.now.kl:.3g} {unit}): drop {last.drop:.3g} "
        f"± {last.se:.2g} over {len(last.now.gold_by_prompt)} prompts, chance {last.chance:.1g} after {last.candidates} "
        f"checkpoint(s), for {patience} evaluation(s)"
    )
    numbers = {
        "best_step": float(last.best.step),
        "gold_best": last.best.gold,
        "gold": last.now.gold,
        "drop_se": last.se,
        "chance": last.chance,
    }
    return Symptom(SymptomKind.GOLD_DROP, found[0].now.step, last.now.step, detail, numbers)


def logged_gold_drop(curve: Curve, *, sigmas: float = 3.0, patience: int = 2) -> Symptom | None:
    """The same of a log that has gold's mean alone (GOLD, GOLD_SE where known), for other people's runs.

    A drop counts where it is ``sigmas`` of its standard errors (unpaired, so a cautious one); without
    standard errors where gold fell at each of the last ``patience`` logged steps. KL, where known,
    must be no less than at the best.
    """
    golds = curve.known(Quantity.GOLD)
    if len(golds) <= patience:
        return None
    earlier, recent = golds[:-patience], golds[-patience:]
    step, best = max(earlier, key=lambda pair: pair[1])
    errors, kls = (dict(curve.known(q)) for q in (Quantity.GOLD_SE, _kl_of(curve)))
    if any(not gold < best for _, gold in recent):
        return None
    if step in kls and recent[-1][0] in kls and kls[recent[-1][0]] < kls[step]:
        return None
    se = [math.hypot(errors.get(step, math.nan), errors.get(s, math.nan)) for s, _ in recent]
    if all(math.isfinite(one) for one in se):
        is_clear = all(
            best - gold > sigmas * one for (_, gold), one in zip(recent, se, strict=True)
        )
    else:
        path = [best, *(gold for _, gold in recent)]
        is_clear = all(later < before for before, later in pairwise(path))
    if not is_clear:
        return None
    last_step, gold = recent[-1]
    shown = f" ± {se[-1]:.2g}" if math.isfinite(se[-1]) else ""
    kl = ""
    if step in kls and last_step in kls:
        kl = f" while kl went from {kls[step]:.3g} to {kls[last_step]:.3g}"
    detail = (
        f"gold fell from {best:.3g} at step {step}, the best checkpoint, to {gold:.3g} at step {last_step} "
        f"(drop {best - gold:.3g}{shown}){kl}"
    )
    numbers = {"best_step": float(step), "gold_best": best, "gold": gold}
    return Symptom(SymptomKind.GOLD_DROP, recent[0][0], last_step, detail, numbers)


def _kl_of(curve: Curve) -> Quantity:
    return Quantity.KL_SEQ if curve.has(Quantity.KL_SEQ) else Quantity.KL_TOKEN


def _drop(checkpoints: Sequence[Checkpoint], kl_factor: float) -> _Drop | None:
    """How far the last one is below the best allowed one before; none where it is not, or at too little KL."""
    *earlier, now = checkpoints
    allowed = [point for point in earlier if point.is_allowed]
    if not allowed:
        return None
    best = max(allowed, key=lambda point: (point.gold, -point.step))
    if now.kl < kl_factor * best.kl or not now.gold < best.gold or len(now.gold_by_prompt) < 2:
        return None
    pairs = zip(best.gold_by_prompt, now.gold_by_prompt, strict=True)
    differences = [before - after for before, after in pairs]
    drop, se = fmean(differences), stdev(differences) / math.sqrt(len(differences))
    tail = float(stats.t.sf(drop / se, len(differences) - 1)) if se > 0 else 0.0
    chance = min(1.0, tail * len(allowed))
    return _Drop(best, now, drop, se, chance, len(allowed))

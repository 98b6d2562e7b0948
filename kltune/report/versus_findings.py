"""Studies that can be compared in, what can be told between them out: recommended settings and shared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from kltune.report.recommend import is_baseline
from kltune.report.rows import TrialRow
from kltune.report.versus import Side, is_same_prompts, spec_rows
from kltune.statistics.contrast import Contrast, of_intervals, paired, unpaired
from kltune.trial.words import is_noise, origin_words, setting_short


@dataclass(frozen=True, slots=True)
class Pair:
    """The recommended settings of two studies against each other."""

    one: Side
    other: Side
    contrast: Contrast | None
    """Gold of ``other`` minus that of ``one``, on select prompts; None where it can't be said."""
    basis: str
    """What the interval rests on, or why there is none."""
    confirmed: tuple[float, float, float] | None
    """The same difference on fresh seeds and test prompts, with its 95 % interval; None: not confirmed both."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One setting that all studies judged."""

    words: str
    rows: tuple[TrialRow, ...]
    """Its trial in each study."""
    against_first: tuple[Contrast | None, ...]
    """Gold in the second, third, ... study minus that in the first."""


@dataclass(frozen=True, slots=True)
class VersusFindings:
    """Everything that the comparison says."""

    sides: tuple[Side, ...]
    pairs: tuple[Pair, ...]
    shared: tuple[Shared, ...]
    num_unshared: int
    """Settings that not all of them judged."""
    differing: tuple[tuple[str, ...], ...]
    """Field, then its value in each study."""
    is_other_model: bool
    """Whether some models differ: how settings move with size is for ``kltune transfer``."""


def compare_studies(sides: Sequence[Side]) -> VersusFindings:
    """Compare the recommended settings pair by pair, and the settings that all studies share."""
    many = len(sides) * (len(sides) - 1) // 2
    shared, num_unshared = _shared(sides)
    models = {(s.study.spec.model.base, s.study.spec.model.gguf_file) for s in sides}
    return VersusFindings(
        sides=tuple(sides),
        pairs=tuple(_pair(one, other, many) for one, other in combinations(sides, 2)),
        shared=shared,
        num_unshared=num_unshared,
        differing=tuple(spec_rows(sides)),
        is_other_model=len(models) > 1,
    )


def _pair(one: Side, other: Side, comparisons: int) -> Pair:
    for side in (one, other):
        if side.best is None:
            return Pair(one, other, None, f"{side.label} recommends no setting", None)
    assert one.best is not None
    assert other.best is not None
    contrast, basis = contrast_of((one, one.best), (other, other.best), comparisons)
    confirmed = None
    if one.confirmed is not None and other.confirmed is not None:
        confirmed = of_intervals(other.confirmed, one.confirmed)
    return Pair(one, other, contrast, basis, confirmed)


def contrast_of(
    one: tuple[Side, TrialRow], other: tuple[Side, TrialRow], comparisons: int
) -> tuple[Contrast | None, str]:
    """Gold of the other trial minus that of the first, and what its interval rests on."""
    a, b = one[0].scores(one[1]), other[0].scores(other[1])
    if a is None or b is None:
        return None, "scores by prompt are not on record"
    noises = [side.seed_noise for side, _ in (one, other)]
    seeds = [noise for noise in noises if noise is not None]
    if len(seeds) < len(noises):
        seeds, told = [], "noise of prompts only, none of a fresh seed"
    else:
        told = "noise of prompts and of fresh seeds"
    is_same = is_same_prompts(one[0], other[0])
    if is_same and len(a) == len(b):
        found = paired(b, a, comparisons=comparisons, seeds=seeds)
        return found, f"paired on the same {len(a)} prompts; {told}"
    why = (
        "other prompts" if is_same is False else "whether the prompts are the same is not on record"
    )
    found = unpaired(b, a, comparisons=comparisons, seeds=seeds)
    return found, f"not paired ({why}: {len(a)} and {len(b)}); {told}"


def _shared(sides: Sequence[Side]) -> tuple[tuple[Shared, ...], int]:
    by_key: list[dict[object, TrialRow]] = []
    everything: dict[object, None] = {}
    for side in sides:
        found: dict[object, TrialRow] = {}
        for row in side.study.trials:
            if is_noise(row.origin):
                continue
            key = _key(side, row)
            everything.setdefault(key)
            if row.value is not None and row.peak is not None:
                found.setdefault(key, row)
        by_key.append(found)
    keys = [key for key in everything if all(key in found for found in by_key)]
    comparisons = max(1, len(keys) * (len(sides) - 1))
    first = sides[0]
    shared: list[Shared] = []
    for key in keys:
        rows = tuple(found[key] for found in by_key)
        others = zip(sides[1:], rows[1:], strict=True)
        against = tuple(
            contrast_of((first, rows[0]), (side, row), comparisons)[0] for side, row in others
        )
        shared.append(Shared(_words(first, rows[0]), rows, against))
    return tuple(shared), len(everything) - len(keys)


def _key(side: Side, row: TrialRow) -> object:
    """The same for the same setting: by name for recipes, which each study converts by its own proxy's spread."""
    if is_baseline(row):
        return row.origin
    spec, s = side.study.spec, row.setting
    numbers = (s.beta, s.target_kl, s.horizon, s.learning_rate)
    units = (spec.beta_unit, spec.kl_unit if s.target_kl is not None else None)
    return (s.penalty, s.controller, units, *(None if x is None else f"{x:.9g}" for x in numbers))


def _words(side: Side, row: TrialRow) -> str:
    if is_baseline(row):
        return origin_words(row.origin)
    return setting_short(row.setting, side.study.spec.kl_unit)

"""A study's trials in; the noise floor and the groups that can't be told apart out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kltune.report.compare import ROUNDING, Difference, prompt_scores
from kltune.report.rows import StudyRows, TrialRow
from kltune.statistics.contrast import no_interval
from kltune.statistics.ties import Groups, tie_groups
from kltune.statistics.variance import NoiseFloor, SharedNoise, noise_floor, shared_noise
from kltune.trial.words import is_noise


@dataclass(frozen=True, slots=True)
class Repeats:
    """One setting on several seeds, judged on the same prompts."""

    trials: tuple[TrialRow, ...]
    """By seed, no seed twice."""
    floor: NoiseFloor


@dataclass(frozen=True, slots=True)
class Pairing:
    """What the same seed brings to a comparison: spread of prompt-by-prompt differences to other settings."""

    same_seed: float
    """Mean variance over prompts of (setting - other setting), both on one seed; in gold squared."""
    other_seed: float
    """The same where the two are on different seeds."""
    num_pairs: int
    """Of each kind at least."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates in groups, best first; a group is in the order of trial numbers, which is no rank."""

    groups: tuple[tuple[TrialRow, ...], ...]
    found: Groups | None
    """Indices as in ``compared``; none where there is nothing to compare."""
    compared: tuple[TrialRow, ...]
    """The candidates whose scores by prompt are on record, by number."""
    places: Mapping[int, int]
    """Trial number to place in ``compared``."""
    scores: NDArray[np.float64]
    """[compared, prompts]."""
    left_out: tuple[TrialRow, ...]
    """Candidates that can't be compared prompt by prompt."""
    repeats: Repeats | None
    """What the seeds' variance comes from; none: it was not measured."""
    shared: SharedNoise | None
    """Of two settings that both ran on several seeds; none: there are no two."""
    pairing: Pairing | None

    def group_of(self, row: TrialRow) -> int | None:
        """Number of its group, 1 for the best."""
        groups = enumerate(self.groups, 1)
        return next((n for n, group in groups if any(r.number == row.number for r in group)), None)

    def difference(self, row: TrialRow, other: TrialRow) -> Difference | None:
        """Value of ``row`` minus that of ``other``, with the interval that holds for all pairs together.

        None where one of them is not compared.
        """
        a, b = self.places.get(row.number), self.places.get(other.number)
        if self.found is None or a is None or b is None:
            return None
        half = float(self.found.half_width[a, b])
        assert row.value is not None
        assert other.value is not None
        mean = row.value - other.value
        differing = int((np.abs(self.scores[a] - self.scores[b]) > ROUNDING).sum())
        return Difference(mean, mean - half, mean + half, self.found.num_prompts, differing)

    def most_below_best(self, row: TrialRow) -> float | None:
        """The most by which the best of all can be above it, in gold, with 95 % confidence.

        None where the prompts are too few for an interval, or have no spread.
        """
        place = self.places.get(row.number)
        if self.found is None or place is None:
            return None
        if no_interval(self.found.num_prompts, is_spread=_has_spread(self.found)):
            return None
        return self.found.most_below_best[place]


def _has_spread(found: Groups) -> bool:
    return float(found.half_width.max()) > ROUNDING


def rank(study: StudyRows) -> Ranking:
    """Group the candidates; repeats on other seeds give the seeds' variance and are no candidates."""
    scores = {row.number: _scores(study, row) for row in study.trials if row.is_candidate}
    wide = max((len(s) for s in scores.values() if s is not None), default=0)
    known = {number: s for number, s in scores.items() if s is not None and len(s) == wide > 1}
    candidates = [r for r in study.trials if r.is_candidate and not is_noise(r.origin)]
    compared = tuple(row for row in candidates if row.number in known)
    every = _all_repeats(study, known)
    repeats = max(every, key=lambda r: (r.floor.num_seeds, -r.trials[0].number), default=None)
    found, groups = None, tuple((row,) for row in compared)
    table = np.array([known[row.number] for row in compared])
    if len(compared) > 1:
        values = np.array([row.value for row in compared], dtype=float)
        found = tie_groups(table, values, None if repeats is None else repeats.floor)
        groups = tuple(tuple(compared[i] for i in group) for group in found.groups)
    return Ranking(
        groups=groups,
        found=found,
        compared=compared,
        places={row.number: place for place, row in enumerate(compared)},
        scores=table,
        left_out=tuple(row for row in candidates if row.number not in known),
        repeats=repeats,
        shared=_shared(every, known),
        pairing=None if repeats is None else _pairing(repeats, compared, known),
    )


def _scores(study: StudyRows, row: TrialRow) -> NDArray[np.float64] | None:
    return prompt_scores(row, study.spec.objective, study.spec.kl_unit)


def _all_repeats(study: StudyRows, known: dict[int, NDArray[np.float64]]) -> list[Repeats]:
    """Every setting that ran on two seeds or more."""
    by_setting: dict[str, dict[int, TrialRow]] = {}
    for row in study.trials:
        if row.number in known:
            key = json.dumps(row.setting.model_dump(mode="json", exclude={"seed"}), sort_keys=True)
            by_setting.setdefault(key, {}).setdefault(row.setting.seed, row)
    every: list[Repeats] = []
    for by_seed in by_setting.values():
        trials = tuple(by_seed[seed] for seed in sorted(by_seed))
        floor = noise_floor(np.stack([known[row.number] for row in trials]))
        if floor is not None:
            every.append(Repeats(trials, floor))
    return every


def _shared(every: Sequence[Repeats], known: dict[int, NDArray[np.float64]]) -> SharedNoise | None:
    """Of the two settings with the most seeds in common."""
    best: tuple[list[int], Repeats, Repeats] | None = None
    for n, a in enumerate(every):
        for b in every[n + 1 :]:
            seeds = sorted({r.setting.seed for r in a.trials} & {r.setting.seed for r in b.trials})
            if len(seeds) >= 2 and (best is None or len(seeds) > len(best[0])):
                best = (seeds, a, b)
    if best is None:
        return None
    a_SN, b_SN = (
        np.stack([known[r.number] for r in repeats.trials if r.setting.seed in best[0]])
        for repeats in best[1:]
    )
    return shared_noise(a_SN, b_SN)


def _pairing(
    repeats: Repeats, compared: Sequence[TrialRow], known: dict[int, NDArray[np.float64]]
) -> Pairing | None:
    """Compare the repeated setting with each other one, on that one's seed and on other seeds."""
    own = {row.number for row in repeats.trials}
    same: list[float] = []
    apart: list[float] = []
    for other in compared:
        if other.number in own:
            continue
        for row in repeats.trials:
            spread = float((known[row.number] - known[other.number]).var(ddof=1))
            (same if row.setting.seed == other.setting.seed else apart).append(spread)
    if not same or not apart:
        return None
    return Pairing(float(np.mean(same)), float(np.mean(apart)), min(len(same), len(apart)))

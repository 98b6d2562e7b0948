"""A study's trials in, what they say of gold's noise out (kltune.plan.noise)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kltune.metrics.rows import CONFIG
from kltune.plan.noise import Measured, SeedNoise
from kltune.plan.seeds import seed_noise
from kltune.report.compare import prompt_scores
from kltune.report.rows import StudyRows, TrialRow, trial_row
from kltune.trial.record import read_samples, read_trial

MOST = 40
"""Trials that are read for it; the best ones."""

FEWEST_KEPT = 4
"""Prompts with a kept sample, below which nothing is said of samples."""

Array = NDArray[np.float64]


def measure_noise(study: StudyRows) -> Measured | None:
    """What the study's feasible trials, its repeated seeds and its kept samples say; none before any evaluation."""
    rows = sorted((t for t in study.trials if t.is_candidate), key=lambda t: -(t.value or 0.0))
    if len(rows) < 2:
        rows = [t for t in study.trials if t.peak is not None]
    rows = _one_a_setting(rows)[:MOST]
    scored = [(row, scores) for row in rows if (scores := _scores(study, row)) is not None]
    if not scored:
        return None
    num_prompts = len(scored[0][1])
    scored = [(row, scores) for row, scores in scored if len(scores) == num_prompts]
    gold_NP = np.array([scores for _, scores in scored])
    samples = study.spec.evaluate.samples
    pair = _pair_variance(gold_NP) if len(gold_NP) > 1 else None
    drawn = _sample_variance([row for row, _ in scored], num_prompts, samples)
    if pair is not None and drawn is not None:
        drawn = min(drawn, pair * samples)  # no more than there is in all
    return Measured(
        source=_words(study, len(scored), num_prompts),
        prompts=num_prompts,
        samples=samples,
        pair=pair,
        num_settings=len(scored),
        sample=drawn,
        between=None if pair is not None else float(gold_NP[0].var(ddof=1)),
        seeds=_seeds(study, drawn or 0.0, pair),
    )


def _words(study: StudyRows, num: int, prompts: int) -> str:
    which = "feasible trials" if num > 1 else "trial"
    return f"{num} {which} of {study.spec.name} on {prompts} select prompts × {study.spec.evaluate.samples} samples"


def _scores(study: StudyRows, row: TrialRow) -> Array | None:
    return prompt_scores(row, study.spec.objective, study.spec.kl_unit)


def _one_a_setting(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The first trial of each setting: runs that repeat one say nothing of another setting."""
    first: dict[str, TrialRow] = {}
    for row in rows:
        first.setdefault(_setting_key(row), row)
    return list(first.values())


def _setting_key(row: TrialRow) -> str:
    return row.setting.model_copy(update={"seed": 0}).model_dump_json()


def _pair_variance(gold_NP: Array) -> float:
    """Variance over prompts of two trials' difference, mean over all pairs."""
    count = len(gold_NP)
    covariance = np.cov(gold_NP)
    return float(2 * (np.trace(covariance) - covariance.sum() / count) / (count - 1))


def _sample_variance(rows: Sequence[TrialRow], num_prompts: int, samples: int) -> float | None:
    """Variance of a difference between single samples of two trials, from the samples that were kept.

    A kept sample minus its prompt's mean over ``samples`` has (1 - 1 / samples) of a sample's variance.
    """
    residuals = [_residuals(row, num_prompts) for row in rows]
    found = [r for r in residuals if r is not None]
    widths = {len(r) for r in found}
    if samples < 2 or len(widths) != 1:
        return None
    residual_NP = np.array(found)
    if residual_NP.shape[1] < FEWEST_KEPT:
        return None
    count = len(residual_NP)
    squares, sums = (residual_NP**2).sum(axis=0), residual_NP.sum(axis=0)
    pairs_P = 2 * squares / count
    if count > 1:
        pairs_P = 2 * (count * squares - sums**2) / (count * (count - 1))
    # Less one standard error: what is not clearly of the samples counts as of the prompts, which more
    # samples don't help.
    low = pairs_P.mean() - pairs_P.std(ddof=1) / np.sqrt(len(pairs_P))
    return float(max(0.0, low) * samples / (samples - 1))


def _residuals(row: TrialRow, num_prompts: int) -> Array | None:
    """First sample minus mean, of each prompt whose first sample was kept at the peak."""
    peak = row.peak
    kept = [] if peak is None else read_samples(row.folder, peak.step)
    golds = [k["gold"] for k in kept]
    if peak is None or not kept or any(g is None for g in golds):
        return None
    chosen = [kept_index(i, len(kept), num_prompts) for i in range(len(kept))]
    means = np.array([peak.gold_by_prompt[i] for i in chosen])
    found = np.array(golds, dtype=float) - means
    return found if bool(np.isfinite(found).all()) else None


def kept_index(place: int, kept: int, num_prompts: int) -> int:
    """Which prompt the ``place``-th kept sample is of (kltune.trainer.data.spread_evenly)."""
    return place * num_prompts // kept


def _seeds(study: StudyRows, sample: float, pair: float | None) -> SeedNoise | None:
    """Of the settings that ran on several seeds: in the study itself, else in its confirmation."""
    cells = sample / study.spec.evaluate.samples
    for rows in (study.trials, _confirmed(study)):
        table = _table(study, rows)
        if table is not None:
            return seed_noise(table, cells, pair)
    return None


def _confirmed(study: StudyRows) -> tuple[TrialRow, ...]:
    spec = study.spec
    folders = sorted(study.path.glob(f"confirm/runs/*/{CONFIG}"))
    return tuple(trial_row(read_trial(f.parent), spec.objective, spec.kl_unit) for f in folders)


def _table(study: StudyRows, rows: Sequence[TrialRow]) -> Array | None:
    """Gold of the settings that share the most seeds, settings x seeds x prompts."""
    by_setting: dict[str, dict[int, Array]] = {}
    for row in rows:
        scores = _scores(study, row)
        if scores is not None:
            by_setting.setdefault(_setting_key(row), {})[row.setting.seed] = scores
    repeated = [runs for runs in by_setting.values() if len(runs) > 1]
    if not repeated:
        return None
    chosen = _sharing(repeated)
    seeds = sorted(set.intersection(*(set(runs) for runs in chosen)))
    if len({len(s) for s in chain.from_iterable(runs.values() for runs in chosen)}) != 1:
        return None
    return np.array([[runs[seed] for seed in seeds] for runs in chosen])


def _sharing(repeated: Sequence[Mapping[int, Array]]) -> list[Mapping[int, Array]]:
    """The settings that ran on (at least) the seeds of the one with the most."""
    widest = max(repeated, key=len)
    return [runs for runs in repeated if set(widest) <= set(runs)]

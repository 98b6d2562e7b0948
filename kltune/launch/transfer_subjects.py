"""Study folders in, what ``kltune transfer`` compares out: settings, values by prompt, KL, the law's peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kltune.launch.parameters import count_parameters
from kltune.report.compare import prompt_scores
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.statistics.drift import Interval
from kltune.statistics.law import LawForm, LawVerdict, law_points
from kltune.statistics.law_pooled import fit_pooled_law
from kltune.transfer.rules import Subject, Tried
from kltune.trial.outcome import TrialState

_CLEAR = 2.0
"""Gold has turned where its last evaluation is below the peak by this many standard errors."""


def read_subjects(studies: Sequence[Path], parameters: Sequence[int] | None) -> list[Subject]:
    """Read every study.

    Raises:
        StudyError: a folder that can't be read.
        SpecError: a model whose parameters can't be counted.
    """
    rows = [read_study(path) for path in studies]
    counts = (
        [count_parameters(study.spec.model) for study in rows]
        if parameters is None
        else list(parameters)
    )
    return [subject_of(study, count) for study, count in zip(rows, counts, strict=True)]


def subject_of(study: StudyRows, parameters: int) -> Subject:
    """One study as it is compared."""
    return Subject(
        study=study.path.resolve().name,
        parameters=parameters,
        spec=study.spec,
        sigma_r=study.sigma_r,
        trials=tuple(_tried(study, row) for row in study.trials),
        law_peak=_law_peak(study),
    )


def _tried(study: StudyRows, row: TrialRow) -> Tried:
    is_judged = row.state is TrialState.COMPLETE and row.value is not None
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit) if is_judged else None
    return Tried(
        origin=row.origin,
        setting=row.setting,
        value=row.value if is_judged else None,
        scores=() if scores is None else tuple(float(x) for x in scores),
        kl_by_step={
            c.step: c.kl_seq for c in row.checkpoints if c.step > 0 and math.isfinite(c.kl_seq)
        },
        peak_kl=_peak_kl(row) if is_judged else None,
    )


def _peak_kl(row: TrialRow) -> float | None:
    """KL at the highest gold after the start, where gold has clearly fallen since."""
    finite = [c for c in row.checkpoints if c.step > 0 and math.isfinite(c.gold)]
    if len(finite) < 2:
        return None
    top, end = max(finite, key=lambda c: c.gold), finite[-1]
    spread = math.hypot(top.gold_se, end.gold_se)
    has_turned = end.step > top.step and top.gold - end.gold > _CLEAR * spread
    return top.kl_seq if has_turned and top.kl_seq > 0 else None


def _law_peak(study: StudyRows) -> Interval:
    """By the law fitted to all trials together; nothing where it does not hold or can't be told."""
    trials = [
        law_points(
            np.array([c.kl_seq for c in row.checkpoints], dtype=np.float64),
            np.array([c.gold_by_prompt for c in row.checkpoints], dtype=np.float64),
        )
        for row in study.trials
        if row.start is not None and len({len(c.gold_by_prompt) for c in row.checkpoints}) == 1
    ]
    fit = fit_pooled_law(trials, LawForm.RL)
    if fit.verdict is not LawVerdict.IDENTIFIED or fit.kl_peak is None:
        return Interval(None)
    ends = (fit.kl_peak.value, fit.kl_peak.low, fit.kl_peak.high)
    return Interval(*(x if math.isfinite(x) and x > 0 else None for x in ends))

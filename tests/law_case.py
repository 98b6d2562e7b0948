"""Findings about the over-optimisation law, made up: what the words and the tables are tested on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fake_study import trial, write_study

from kltune.report.law_findings import (
    BetaFinding,
    BetaVerdict,
    Budget,
    LawFindings,
    TrialLaw,
    find_laws,
)
from kltune.report.rows import StudyRows, read_study
from kltune.statistics.frontier import Frontier
from kltune.statistics.law import LawDoubt, LawFit, LawForm, LawVerdict
from kltune.statistics.law_errors import Estimate
from kltune.statistics.settling import Settling, Trend

FIT = LawFit(
    form=LawForm.RL,
    verdict=LawVerdict.IDENTIFIED,
    doubt=LawDoubt.NONE,
    a=Estimate(0.9, 0.8, 1.0),
    b=Estimate(0.6, 0.5, 0.7),
    kl_peak=Estimate(2.72, 2.1, 3.9),
    gain_peak=0.99,
    misfit_p=0.4,
    run_sd=0.08,
    kl_range=(0.35, 8.0),
    num_points=192,
    num_prompts=64,
)
SETTLED = Settling(Trend.SETTLED, 1.05, 0.9, 1.2, 2.5, 40)
RISING = Settling(Trend.RISING, 2.1, 1.4, 3.2, 3.0, 40)
FRONTIER = Frontier(0.03, -0.05, 0.11, 0.45, 1.4, 24, 20)


def fit(**changes: Any) -> LawFit:
    """An identified law with these fields changed."""
    return replace(FIT, **changes)


def study(folder: Path) -> StudyRows:
    """A study of eight trials."""
    return read_study(write_study(folder, [trial(b) for b in np.geomspace(0.001, 1, 8).tolist()]))


def findings(rows: StudyRows, best: int | None = 0, **changes: Any) -> LawFindings:
    """What is found in a study, with parts replaced."""
    found = find_laws(rows, None if best is None else rows.trials[best])
    return replace(found, **changes)


def beta(
    law: TrialLaw, settling: Settling, *, told: bool = False, at_level: bool = True
) -> BetaFinding:
    """A verdict on the beta of a trial."""
    verdict = BetaVerdict.TOLD if told else BetaVerdict.UNTOLD
    return BetaFinding(verdict, replace(law, settling=settling), 2.4, at_level)


LAW_BUDGET = Budget(2.72, 2.1, 3.9, "law")
PEAK_BUDGET = Budget(2.4, 1.9, 2.8, "peak")
NAN = math.nan

"""Studies on three model sizes whose truth is known: gold over log beta is a parabola whose top moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fake_study import SPEC

from kltune.spec.penalty import Penalty
from kltune.spec.study import StudySpec
from kltune.spec.trial import ControllerKind, TrialSpec
from kltune.statistics.drift import Interval
from kltune.transfer.compare import compare_sizes
from kltune.transfer.result import TransferResult
from kltune.transfer.rules import Subject, Tried

SIZES = {"small": 92_688, "medium": 351_264, "large": 1_366_080}
BASES = {
    "small": "builtin:kitchen-small",
    "medium": "builtin:kitchen",
    "large": "builtin:kitchen-large",
}
PROMPTS = 32


def spec(size: str, **changes: Any) -> StudySpec:
    model = {"base": BASES[size]}
    return StudySpec.model_validate({**SPEC, "name": f"kitchen-{size}", "model": model, **changes})


def subject(size: str, factor: float = 1.0, num: int = 14, **changes: Any) -> Subject:
    """``factor``: the best beta of the large model over that of the small one."""
    logs = [math.log(count) for count in SIZES.values()]
    share = (math.log(SIZES[size]) - sum(logs) / 3) / (max(logs) - min(logs))
    best = math.log(0.1) + math.log(factor) * share
    rng = np.random.default_rng(sorted(SIZES).index(size))
    betas = np.exp(np.random.default_rng(5).uniform(math.log(1e-3), math.log(1), num))
    trials = [
        tried(float(beta), 1 - 0.05 * (math.log(beta) - best) ** 2, float(beta), rng)
        for beta in betas
    ]
    trials.append(tried(0.0, 0.4, 0.02, rng, origin="zero"))
    sigma = {"small": 0.7, "medium": 0.8, "large": 0.9}[size]
    trials.append(tried(0.1 * sigma, 0.9, 0.1, rng, origin="baseline:deepseekmath"))
    return Subject(size, SIZES[size], spec(size, **changes), sigma, tuple(trials), Interval(None))


def tried(
    beta: float, value: float, pull: float, rng: np.random.Generator, origin: str = "sobol"
) -> Tried:
    setting = TrialSpec(
        beta=beta,
        penalty=Penalty.K2_LOSS if beta else None,
        controller=ControllerKind.FIXED,
        learning_rate=1e-3,
    )
    scores = value + np.linspace(-1, 1, PROMPTS) + 0.05 * rng.normal(size=PROMPTS)
    kl = 2.0 / (1 + pull) * math.exp(0.05 * rng.normal())
    return Tried(
        origin, setting, float(scores.mean()), tuple(scores.tolist()), {40: kl / 2, 80: kl}, kl / 2
    )


def result(factor: float = 1.0) -> TransferResult:
    return compare_sizes([subject(size, factor) for size in ("large", "small", "medium")], seed=0)

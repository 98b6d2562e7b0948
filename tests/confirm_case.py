"""A study of the fake bank's curves and a confirmation of it: what the tests of confirm share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fake_study import trial, write_study

from kltune.confirm.design import Role
from kltune.confirm.judge import judge
from kltune.confirm.result import ArmFacts, ConfirmResult, Judgement
from kltune.spec.penalty import Penalty

NAMES = ("trial 4: k2-loss 0.1", "trial 5: k2-loss 0.2", "trial 0: recipe a", "untrained start")
ROLES: tuple[Role, ...] = ("recommended", "candidate", "baseline", "start")


def gold_SKP(
    means: Sequence[float], seeds: int = 8, prompts: int = 32, noise: float = 0.05, root: int = 0
) -> np.ndarray:
    """Gold with effects of seed, prompt, setting x seed, setting x prompt and of all three."""
    rng = np.random.default_rng(root)
    count = len(means)
    effects = (
        rng.normal(0, 0.1, (seeds, 1, 1))
        + rng.normal(0, 0.5, (1, 1, prompts))
        + rng.normal(0, noise, (seeds, count, 1))
        + rng.normal(0, noise, (1, count, prompts))
        + rng.normal(0, 5 * noise, (seeds, count, prompts))
    )
    return effects + np.asarray(means)[None, :, None]


def judged(means: Sequence[float], **how: float) -> Judgement:
    return judge("gold", NAMES[: len(means)], ROLES[: len(means)], gold_SKP(means, **how))  # type: ignore[arg-type]


def result_of(one: Judgement, **changes: object) -> ConfirmResult:
    stops = (40, 30, 20, 0)
    arms = tuple(
        ArmFacts(
            number=None if ROLES[k] == "start" else 4 - k,
            role=ROLES[k],
            origin="baseline:trl-grpo-0.18" if ROLES[k] == "baseline" else "sobol",
            name=one.names[k],
            setting={"beta": 0.1},
            stop=stops[k],
            select_value=1.2,
            select_gold=None if ROLES[k] == "start" else 1.25,
            kl_token=0.1,
            kl_seq=1.0,
            kl_token_by_seed=(0.1, 0.1),
            over_limit=0,
            proxy=0.5,
            diverged=0,
        )
        for k in range(len(one.names))
    )
    fields: dict[str, object] = {
        "study": "kitchen",
        "seeds": tuple(range(100, 100 + len(one.places[0].by_seed))),
        "num_prompts": 32,
        "samples": 2,
        "digest": "d" * 64,
        "arms": arms,
        "judgements": (one,),
        "kl_limit": 0.5,
        "kl_unit": "token",
        "looks": 1,
        "gates": (),
        "notes": (),
        "seconds": 12.0,
    }
    return ConfirmResult(**{**fields, **changes})  # type: ignore[arg-type]


def study(folder: Path, **spec: object) -> Path:
    """Two recipes, beta = 0, and searched settings of which two are the same."""
    trials = [
        trial(0.0248, penalty=Penalty.K3_LOSS, origin="baseline:trl-grpo-0.18", value=0.5),
        trial(0.001, penalty=Penalty.K1_REWARD, origin="baseline:verl-ppo", value=0.4),
        trial(0.0, origin="zero", value=0.3),
        trial(0.3, value=0.2),
        trial(0.1, value=0.9),
        trial(0.1, value=0.8),
        trial(0.05, value=0.7),
    ]
    return write_study(folder, trials, budget={"trials": len(trials)}, **spec)

"""Penalties on a real chat model, SmolLM2-135M: prepared, not yet run, for it needs a GPU.

python studies/2026-11-30-smollm2-penalties/study.py    under an hour on one GPU; flags: studies/experiment.py
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment import ROOT, Block, Study, curves, main

from kltune.statistics.arms import against, at_end, mean_of, when_stopped

SEEDS = range(100, 108)
"""Fixed before the first run."""
NO_KL = "no KL"
ARMS: dict[str, dict[str, object]] = {
    NO_KL: {"beta": 0.0},
    "k1-reward 0.05": {"beta": 0.05, "penalty": "k1-reward"},
    "k1-reward 0.15": {"beta": 0.15, "penalty": "k1-reward"},
    "k2-loss 0.15": {"beta": 0.15, "penalty": "k2-loss"},
    "k3-loss 0.15": {"beta": 0.15, "penalty": "k3-loss"},
    "k3-reward 0.15": {"beta": 0.15, "penalty": "k3-reward"},
    "k1-loss 0.15": {"beta": 0.15, "penalty": "k1-loss"},
}
"""Raw reward per nat of sequence KL. The last two are refused unless allow_biased."""
SHORT = {"trainer.steps": 40, "trainer.learning_rate": 4e-4, "evaluate.every": 5}
"""Half the steps of the sweep at twice its step size, to stay under an hour."""
SMALL = {
    "task": "kitchen",
    "model": {"base": "builtin:kitchen-small", "rank": 4},
    "trainer.precision": "fp32",
    "trainer.steps": 6,
    "trainer.prompts": 2,
    "trainer.max_new_tokens": 12,
    "evaluate": {"every": 2, "prompts": 8, "samples": 1},
}
"""The tests see that the script runs; they say nothing of the question."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds."""
    if small:
        few = {name: ARMS[name] for name in (NO_KL, "k1-reward 0.15", "k1-loss 0.15")}
        return {"arms": Block(few, SEEDS[:2], {"allow_biased": True, **SMALL})}
    return {"arms": Block(ARMS, SEEDS, {"allow_biased": True, **SHORT})}


def analyse(runs: pd.DataFrame, _steps: pd.DataFrame) -> dict[str, Any]:
    """Gold at the end and when stopped, and KL at the end, against no KL (all intervals at once)."""
    gold, kl = curves(runs, "gold"), curves(runs, "kl_seq")
    ends = {arm: at_end(values) for arm, values in gold.items()}
    stopped = {arm: when_stopped(values) for arm, values in gold.items()}
    log_kl = {arm: np.log(values[:, -2:].mean(axis=1)) for arm, values in kl.items()}
    return {
        "runs": int(runs.groupby(["block", "arm", "seed"]).ngroups),
        "gold_end": {arm: asdict(mean_of(values)) for arm, values in ends.items()},
        "gold_stopped": {arm: asdict(mean_of(values)) for arm, values in stopped.items()},
        "end_minus_none": {arm: asdict(one) for arm, one in against(ends, NO_KL).items()},
        "log_kl_minus_none": {arm: asdict(one) for arm, one in against(log_kl, NO_KL).items()},
    }


STUDY = Study(
    Path(__file__).parent, blocks, analyse, spec=str(ROOT / "sweeps" / "smollm2-gpu.yaml")
)

if __name__ == "__main__":
    main(STUDY)

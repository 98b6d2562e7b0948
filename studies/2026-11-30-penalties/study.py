"""Estimators and placements at matched KL: gold, proxy, stability.

python studies/2026-11-30-penalties/study.py    about 25 minutes on two cores (24.7 measured); flags: studies/experiment.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from experiment import Block, Study, main
from penalties_analysis import analyse
from penalties_arms import BETAS, BIASED, NO_KL, SOUND, arm
from penalties_figures import draw
from penalties_tables import tables

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds."""
    if small:
        wanted = [("k1-reward", 0.5), ("k1-loss", 0.5)]
        size = {"model.base": "builtin:kitchen-small", "trainer.steps": 30, "evaluate.every": 10}
        seeds = SEEDS[:2]
    else:
        wanted = [(penalty, beta) for penalty in SOUND for beta in BETAS]
        wanted += [(penalty, beta) for penalty in BIASED for beta in BETAS[1:]]
        size, seeds = {}, SEEDS
    arms = {arm(p, b): {"beta": b, "penalty": p} for p, b in wanted}
    return {"arms": Block({NO_KL: {"beta": 0.0}, **arms}, seeds, {"allow_biased": True, **size})}


STUDY = Study(Path(__file__).parent, blocks, analyse, draw, tables, keeps_steps=True)

if __name__ == "__main__":
    main(STUDY)

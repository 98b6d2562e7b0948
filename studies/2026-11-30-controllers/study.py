"""Fixed or adaptive: gains, targets, rules and stages of the controller that moves beta.

python studies/2026-11-30-controllers/study.py    about 20 to 30 minutes on two cores; flags: studies/experiment.py

The blocks ``floor`` and ``near`` are a second family: two cures for a beta that falls while KL is on
its way up, run after the first 17 settings had been seen. Fixed before these runs, seed by seed:

1. Does a floor bring KL nearer its target, and earlier under control, than the same gain without one? Nearer:
   root mean square of log(KL / target) in the last third. Under control: from the first step on at which KL, meaned
   over three steps, has come to .8 times its target and stays at 1.25 times or less to the end; one step after the
   last for a run that has no such step. Gains .3 and 1: four intervals at once.
2. From beta .2, does a controller hold KL nearer its target than a fixed .2? Two intervals at once.
3. Does gold at the end differ: a floor against the same gain without, all four settings against a fixed .2?
   Six intervals at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from controllers_analysis import analyse
from controllers_arms import (
    BY_GAIN,
    BY_TARGET,
    FIXED,
    FLOOR,
    FLOORED,
    FROM_HIGH,
    HALF,
    NEAR,
    RULES,
    STAGED,
    STAGES,
)
from controllers_figures import draw
from controllers_tables import tables
from experiment import Block, Study, main

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
STEERED = {
    "search.controller": {"choice": ["fixed", "proportional"]},
    "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "proportional"}},
    "search.horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
}
BOUNDED = {
    **STEERED,
    "control.beta_min": FLOOR,
    "search.beta": {"log": [FLOOR, 10], "zero": True},  # no start below the floor
}


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each trainer and section `control`."""
    if small:
        few = {name: BY_GAIN[name] for name in ("gain 0.0064", "gain 1")}
        size = {"model.base": "builtin:kitchen-small", "trainer.steps": 40, "evaluate.every": 20}
        floored = {name: FLOORED[name] for name in ("gain 1, never below 0.02",)}
        return {
            "arms": Block(few, SEEDS[:2], size),
            "floor": Block(floored, SEEDS[:2], {**size, **BOUNDED}),
        }
    arms = {**FIXED, **BY_GAIN, **BY_TARGET, **FROM_HIGH, **RULES}
    stages = {**STEERED, "control.targets": [list(stage) for stage in STAGES]}
    return {
        "arms": Block(arms, SEEDS),
        "staged": Block(STAGED, SEEDS, stages),
        "half": Block(HALF, SEEDS, {"trainer.prompts": 4}),
        "floor": Block(FLOORED, SEEDS, BOUNDED),
        "near": Block(NEAR, SEEDS),
    }


STUDY = Study(Path(__file__).parent, blocks, analyse, draw, tables, keeps_steps=True)

if __name__ == "__main__":
    main(STUDY)

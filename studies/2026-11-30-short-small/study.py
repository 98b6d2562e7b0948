"""Is short and small enough? The same betas on three model sizes and with all weights trained, judged early and late.

python studies/2026-11-30-short-small/study.py    about 25 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from experiment import Block, Study, main, read_table
from short_small_analysis import analyse, seconds_per_run
from short_small_arms import arm
from short_small_figures import draw
from short_small_tables import tables

FOLDER = Path(__file__).parent
SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
FULL_RATE = 5e-4
"""Step size with all weights trained. Of 1e-4, 3e-4 and 1e-3 (seed 50, no KL) the first moves too little (KL .8 at step
60), the last breaks the model (46); between them lies what moves like the adapters."""
BETAS = (0.0, 0.05, 0.15, 0.5, 5.0)
"""Raw reward per nat of sequence KL, in the reward (k1)."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each model."""
    betas = (0.15, 5.0) if small else BETAS
    arms = {
        arm(beta): {"beta": beta, "penalty": "k1-reward"} if beta else {"beta": 0.0}
        for beta in betas
    }
    tiny = {"model.base": "builtin:kitchen-small", "trainer.learning_rate": 1.5e-3}
    if small:  # at the step size of the others, so that 16 steps are enough
        tiny = {"model.base": "builtin:kitchen-small"}
        less = {"trainer.steps": 16, "evaluate": {"every": 4, "prompts": 16, "samples": 1}}
        return {
            "small": Block(arms, SEEDS[:2], {**tiny, **less}),
            "medium": Block(arms, SEEDS[:2], less),
        }
    return {
        "small": Block(arms, SEEDS, tiny),
        "medium": Block(arms, SEEDS),
        "full": Block(arms, SEEDS, {"model.finetune": "full", "trainer.learning_rate": FULL_RATE}),
        "large": Block(arms, SEEDS, {"model.base": "builtin:kitchen-large"}),
    }


def keep_step_s(small: bool, out: Path) -> None:
    """timing.json, seconds of a trial-step by model, of a scaled-down run; that of the study was measured apart, on an idle machine."""
    if small:
        steps = read_table(out / "runs.csv")["step"].max()
        found = read_machine(out)["blocks"].items()
        text = json.dumps({name: seconds_per_run(block) / int(steps) for name, block in found})
        (out / "timing.json").write_text(text, encoding="utf-8")
    elif out != FOLDER:
        shutil.copy(FOLDER / "timing.json", out)


def read_machine(out: Path) -> dict[str, Any]:
    """machine.json."""
    found: dict[str, Any] = json.loads((out / "machine.json").read_text(encoding="utf-8"))
    return found


STUDY = Study(
    FOLDER,
    blocks,
    analyse,
    draw,
    tables,
    finish=keep_step_s,
    more=("machine.json", "timing.json"),
)

if __name__ == "__main__":
    main(STUDY)

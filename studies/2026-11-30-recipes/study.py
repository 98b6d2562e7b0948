"""Published recipes and rules of thumb, converted to one unit and run side by side with equal budget.

python studies/2026-11-30-recipes/study.py    about half an hour on two cores; flags: studies/experiment.py

The blocks ``units-*`` were planned after all other runs had been seen, and written down here before the first of them
was trained. Asked: does one typed coefficient mean the same where the proxy's unit is another one? The built-in proxy
times 1/4, 1 and 4, on the same seeds. Compared, seed by seed, all 24 at once: `k1-reward` .15 as typed at 1/4 and at 4,
and .15 times the scale at both, each with .15 at scale 1; `trl-grpo-0.18`, which kltune converts by the measured
spread, at both with itself at scale 1. Four measures of each: KL along the run, KL at the end, gold at the end, gold
when stopped. Of what is relative to the spread also whether the runs repeat: advantages are divided by the spread of
their group, so scaling reward and beta together should change only rounding and the 1e-4 that is added to that spread.
The block at scale 1 wraps the built-in task as the others do: it must repeat the built-in task's runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from experiment import Block, Study, main
from recipes_analysis import analyse
from recipes_arms import LATE, NO_KL, TUNED
from recipes_figures import draw
from recipes_scaled_task import scaled_task
from recipes_tables import tables
from recipes_units import BLOCKS, GRPO, SCALES, TYPED, relative

SEEDS = range(100, 108)
"""Fixed before the first run; none was used to make the task."""
K1 = "k1-reward"
STEERED = {
    "search.controller": {"choice": ["fixed", "proportional"]},
    "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "proportional"}},
    "search.horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
}
"""What the spec must search before it may say how a controller acts; arms are not drawn from it."""


def proportional(beta: float, target: float, horizon: float) -> dict[str, object]:
    """Ziegler's controller, target in nats/token, horizon in sequences (64 a step)."""
    return {
        "beta": beta,
        "penalty": K1,
        "controller": "proportional",
        "target_kl": target,
        "horizon": horizon,
    }


def threshold(rule: str, beta: float, target: float) -> dict[str, object]:
    """A threshold rule by its name, target in nats/token."""
    return {"beta": beta, "penalty": K1, "controller": f"threshold-{rule}", "target_kl": target}


ARMS: dict[str, str | dict[str, object]] = {
    NO_KL: {"beta": 0.0},
    TUNED: {"beta": 0.15, "penalty": K1},
    # Recipes: beta, estimator, placement and controller as published, in kltune's unit.
    "trl-ppo-0.11": "trl-ppo-0.11",
    "comedy-high": "comedy-high",
    "stiennon": "stiennon",
    "instructgpt": "instructgpt",
    "verl-ppo": "verl-ppo",
    "trl-grpo-0.18": "trl-grpo-0.18",
    "tulu3-grpo": "tulu3-grpo",
    "deepseek-r1": "deepseek-r1",
    # Rules of thumb, by their numbers.
    "target 7, read per token": threshold("1.2x0.8", 0.05, 7.0),
    "target 7, read per sequence": threshold("1.2x0.8", 0.05, 7.0 / 13.18),
    "target 0.2, x1.5": threshold("1.5x", 0.1, 0.2),
    "conservative: 0.03, h 5000": proportional(0.002, 0.03, 5000),
    "conservative, gain 0.5": proportional(0.002, 0.03, 128),
}
"""13.18 tokens is the mean completion of the reference (machine.json)."""
EMA = {"target 0.03, x1.2 every 50": threshold("1.2x", 0.02, 0.03)}
WARM_UP = {"warm-up 0.005 to 0.02": {"beta": 0.02, "penalty": K1, "controller": "schedule"}}
MEASURED = {
    "target = warm-up median": {
        "beta": 0.02,
        "penalty": K1,
        "controller": "proportional",
        "horizon": 640,
    }
}
AFTERWARDS = {LATE: proportional(0.0005, 0.1, 20000)}
STAGED = {"target 0.1, 0.05, 0.03": proportional(0.02, 0.1, 128)}


def units(small: bool) -> dict[str, Block]:
    """The proxy in other units: a block for each scale."""
    typed: dict[str, str | dict[str, object]] = {TYPED: {"beta": 0.15, "penalty": K1}}
    found = {}
    for scale in SCALES[1:] if small else SCALES:
        others = {relative(scale): {"beta": 0.15 * scale, "penalty": K1}}
        converted = {} if small else {GRPO: GRPO}
        arms = typed if scale == 1 else {**typed, **others, **converted}
        size = SMALL if small else {}
        seeds = SEEDS[:2] if small else SEEDS
        found[BLOCKS[scale]] = Block(arms, seeds, {"task": scaled_task(scale), **size})
    return found


SMALL: dict[str, object] = {
    "model.base": "builtin:kitchen-small",
    "trainer.steps": 30,
    "evaluate": {"every": 10, "prompts": 16, "samples": 1},
}
"""What is smaller in the tests."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """Settings x seeds; a block for each section `control`."""
    if small:
        few = {name: ARMS[name] for name in (NO_KL, TUNED, "target 7, read per token")}
        return {"arms": Block(few, SEEDS[:2], SMALL), **units(small)}
    threshold_too = {
        "search.controller": {"choice": ["fixed", "threshold-1.2x"]},
        "search.target_kl": {"log": [0.02, 0.5], "when": {"controller": "threshold-1.2x"}},
    }
    scheduled = {"search.controller": {"choice": ["fixed", "schedule"]}}
    measured = {key: value for key, value in STEERED.items() if key != "search.target_kl"}
    return {
        "arms": Block(ARMS, SEEDS),
        "late": Block(AFTERWARDS, SEEDS, STEERED),
        "ema": Block(EMA, SEEDS, {**threshold_too, "control.ema": 0.5}),
        "warm-up": Block(WARM_UP, SEEDS, {**scheduled, "control.schedule": [[0, 0.25], [0.1, 1]]}),
        "measured": Block(MEASURED, SEEDS, {**measured, "control.calibrate": {"share": 0.1}}),
        "staged": Block(
            STAGED, SEEDS, {**STEERED, "control.targets": [[0, 1], [0.33, 0.5], [0.67, 0.3]]}
        ),
        **units(small),
    }


STUDY = Study(
    Path(__file__).parent,
    blocks,
    analyse,
    draw,
    tables,
    more=("machine.json",),
    keeps_steps=True,
)

if __name__ == "__main__":
    main(STUDY)

"""The settings of controllers that are compared, by name: gains, targets, rules, stages."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

K1 = "k1-reward"
ROWS = 64
"""Sequences per step: 8 prompts x 8 completions."""
TARGET = 0.1
"""nats/token; about 1.3 nats/sequence, where gold still rises."""
GAINS = (0.0064, 0.1, 0.3, 1.0, 3.0)
"""Sequences per step / horizon; .0064 is the usual horizon of 10,000."""


def steered(
    gain: float, target: float = TARGET, beta: float = 0.02, rows: int = ROWS
) -> dict[str, object]:
    """The proportional controller by its gain."""
    return {
        "beta": beta,
        "penalty": K1,
        "controller": "proportional",
        "target_kl": target,
        "horizon": rows / gain,
    }


def rule(name: str) -> dict[str, object]:
    """A threshold rule by its name."""
    return {"beta": 0.02, "penalty": K1, "controller": f"threshold-{name}", "target_kl": TARGET}


FIXED = {f"fixed {beta:g}": {"beta": beta, "penalty": K1} for beta in (0.02, 0.2)}
BY_GAIN = {f"gain {gain:g}": steered(gain) for gain in GAINS}
BY_TARGET = {f"gain 0.3, target {target:g}": steered(0.3, target) for target in (0.03, 0.3)}
FROM_HIGH = {f"gain {gain:g} from beta 2": steered(gain, beta=2.0) for gain in (0.1, 1.0)}
RULES = {f"threshold {name}": rule(name) for name in ("ppo2017", "1.2x0.8", "1.5x")}
STAGED = {"gain 0.3, target 0.3 then 0.1 then 0.03": steered(0.3, 0.3)}
HALF = {
    "32 a step, same gain 0.3": steered(0.3, rows=ROWS // 2),
    "32 a step, same horizon": steered(0.15, rows=ROWS // 2),
}
"""Half the sequences a step: horizon 107 keeps the gain, horizon 213 is that of gain .3 with 64."""
FLOOR = 0.02
"""The lowest beta of `FLOORED`: where they start."""
FLOORED = {f"gain {gain:g}, never below {FLOOR:g}": steered(gain) for gain in (0.3, 1.0)}
NEAR = {f"gain {gain:g} from beta 0.2": steered(gain, beta=0.2) for gain in (0.3, 1.0)}
"""From the fixed beta whose KL came nearest to its target."""
STAGES = ((0, 1), (0.33, 0.33), (0.67, 0.1))
"""Of the staged target: from this share of the run on, this factor."""
FIRST = {**FIXED, **BY_GAIN, **BY_TARGET, **FROM_HIGH, **RULES, **STAGED, **HALF}
"""The first family; its comparisons count these alone."""
CURES = {**FLOORED, **NEAR}
"""The second family: run after the first had been seen, compared as study.py says."""
SETTINGS = {**FIRST, **CURES}
CLIP = 0.2
"""The controller's error is cut off here."""
WHOLE = "gain 0.3"
"""What half the sequences a step are compared with."""
STEADY = "fixed 0.2"
"""A fixed beta whose KL settles near the target: what swings without a controller."""


def target_at(name: str, step_T: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Target in force at each step (from 1), nats/token; of a fixed beta `TARGET`, for comparison."""
    given = SETTINGS[name].get("target_kl", TARGET)
    assert isinstance(given, float)
    if name not in STAGED:
        return np.full(len(step_T), given)
    shares = (step_T - 1) / steps
    return given * np.array([[f for start, f in STAGES if start <= s][-1] for s in shares])


def gain_of(name: str) -> float:
    """Sequences per step / horizon; nan where no proportional controller acts."""
    horizon = SETTINGS[name].get("horizon")
    return (
        math.nan if horizon is None else (ROWS // 2 if name in HALF else ROWS) / float(str(horizon))
    )

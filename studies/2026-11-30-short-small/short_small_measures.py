"""What a setting's whole runs are judged by: gold stopped at its peak, or at the last step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from kltune.statistics.arms import at_end, when_stopped

Floats = NDArray[np.float64]
Curves = Mapping[str, Floats]
"""Gold (or KL) by arm, S seeds x C evaluations, the first the start."""

MEASURES: dict[str, Callable[[Floats], Floats]] = {"stopped": when_stopped, "at_end": at_end}
"""Value of each seed's run: at the evaluation where the other seeds' gold is highest, and at the last step."""
MEASURE_WORDS = {"stopped": "stopped at the peak", "at_end": "at the last step"}
GOALS = ("stopped", "at_end", "look_stop")
"""What a look is for: beta of a run that is stopped at its own peak, beta of one that is not stopped, beta and the
step to stop at."""


def judged(gold: Curves, measure: str) -> dict[str, Floats]:
    """By arm, what each seed's run is worth."""
    return {name: MEASURES[measure](values) for name, values in gold.items()}

"""The limits that validation judges by, each with its reason; the page states them. No flag changes them."""

from __future__ import annotations

from typing import Final

JUMP_WARN: Final = 1.5
JUMP_FAIL: Final = 3.0
"""KL of a step over the median of the three before it. The proportional controller clips its own error at
20 %, so it can't answer a step of half again; three times is what a KL guard of patience 3 would stop at
if it stayed (field case E5: 1, 4, 9, 16)."""

JUMP_NOISES: Final = 6.0
"""Robust standard deviations of that ratio's logarithm, beyond which a jump is no noise: of 1000 normal
steps none is expected."""

JUMP_FLOOR: Final = 0.5
"""Steps before which KL is below this share of its median are left out: on the way up from 0 it doubles
within a few steps by itself. The median, so that a jump does not hide what was before it."""

TOKEN_WARN: Final = 10.0
TOKEN_FAIL: Final = 20.0
"""Nats of one token. verl clamps its per-token estimate at 10 (and the log-ratio at 20), so beyond that other
trainers see another KL than this one; exp(20) is past what 16-bit log-probs resolve."""

SAMPLE_WARN: Final = 0.5
"""Share of the KL of the kept completions around the stop that one of them has, where single tokens are not on
record. Of 62 recorded trials of the built-in task the median was 0.13 and one in twenty above 0.5."""

SCORE_KL_WARN: Final = 0.3
"""Correlation of score and KL over completions. Below it less than a tenth of the score's variance goes with KL."""

FEWEST_SAMPLES: Final = 12
"""Completions below which neither a correlation nor an outlier is told."""

REPEAT_WARN: Final = 0.0
REPEAT_FAIL: Final = 1.0
"""Standard deviation of gold between two readings of one completion, as a share of the standard deviation of
gold between completions: 0 is a rule; at 1 gold says as much of its own mood as of the text."""

FEWEST_CANDIDATES: Final = 5
"""Feasible complete trials below which a winner had hardly a contest."""

RISE_ERRORS: Final = 2.0
"""Standard errors of a paired difference of gold beyond which it is called a fall or a rise (95 %)."""

FEWEST_STEPS: Final = 10
"""Training steps below which smoothness can't be told."""

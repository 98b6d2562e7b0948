"""A run's log in, a training reward that falls or goes up and down out. Pure."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, median

from kltune.diagnose.kl_rules import both_units, kl_of
from kltune.diagnose.result import Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import Pairs, first_part, last_part, level, moving_mean, noise, shown
from kltune.diagnose.series import values as numbers_of
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

LEAST = 12
"""Logged rewards below which no course can be told."""
_WINDOWS = 10
_SIGMAS = 5.0
"""Standard errors: a peak is the best of about ten windows."""
_SHARE = 0.3
"""Of all that the reward ever moved, which a fall must make up."""
_ROUNDING = 1e-4
"""Share of the reward's size below which a change is none."""
_GREW = 1.5
_NEAR_SEQ, _NEAR_TOKEN = 0.1, 1e-3
"""Nats up to which a policy is still its reference (as the stalled rule has it)."""
_PIECES, _SWING_SIGMAS, _LEAST_SWINGS = 40, 8.0, 3
_MAD_TO_SD = 1.4826


def falls(run: RunLog) -> Sign | None:
    """The mean reward ends clearly below the best that it held."""
    proxy = run.curve.known(Quantity.PROXY)
    if len(proxy) < LEAST:
        return None
    width = max(3, len(proxy) // _WINDOWS)
    means = moving_mean(proxy, width)
    peak = max(means[:-width], key=lambda window: window[2])
    start, end = means[0], means[-1]
    error = _error(numbers_of(proxy), width)
    reach = peak[2] - min(window[2] for window in means)
    # Half a window earlier it must be down as well: a bad last step or two are no fall.
    drop = peak[2] - max(end[2], means[-1 - width // 2][2])
    size = max(abs(window[2]) for window in means)
    if drop <= max(_SIGMAS * error, _ROUNDING * size) or drop < _SHARE * reach:
        return None
    is_lost = end[2] < start[2] - 3 * error
    detail = (
        f"the mean reward was {shown(peak[2])} in steps {peak[0]}-{peak[1]} and is {shown(end[2])} in steps "
        f"{end[0]}-{end[1]} (standard error {shown(error)}; {shown(start[2])} in steps {start[0]}-{start[1]})"
    )
    numbers = {"peak": peak[2], "end": end[2], "start": start[2], "se": error}
    at_reference, grows, words = _distance(run)
    name = "reward_falls_at_reference" if at_reference else "reward_falls"
    grade = Grade.FAIL if is_lost and grows and not at_reference else Grade.WARN
    return Sign(name, grade, peak[0], end[1], f"{detail}; {words}", numbers)


def swing_count(proxy: Pairs, spread: float) -> tuple[int, float]:
    """How often the mean reward fell and rose again by a full ``spread`` and beyond noise; and by how much it must."""
    width = max(3, len(proxy) // _PIECES)
    means = [window[2] for window in moving_mean(proxy, width)]
    limit = max(_SWING_SIGMAS * noise(numbers_of(proxy)) * math.sqrt(2 / width), spread)
    if not means or limit <= _ROUNDING * max(map(abs, means)):
        return 0, limit
    count, high, low, is_down = 0, means[0], means[0], False
    for mean in means:
        high, low = max(high, mean), min(low, mean)
        if not is_down and mean < high - limit:
            is_down, low = True, mean
        elif is_down and mean > low + limit:
            is_down, high = False, mean
            count += 1
    return count, limit


def goes_up_and_down(run: RunLog) -> Sign | None:
    """The mean reward is lost and won back several times."""
    proxy = run.curve.known(Quantity.PROXY)
    spreads = run.curve.known(Quantity.PROXY_STD)
    if len(proxy) < LEAST or not spreads:
        return None
    count, limit = swing_count(proxy, level(spreads))
    if count < _LEAST_SWINGS:
        return None
    first, last = proxy[0][0], proxy[-1][0]
    detail = (
        f"the mean reward fell and rose again by more than {shown(limit)} (a full spread of the reward, and beyond its "
        f"noise) {count} times in steps {first}-{last}"
    )
    numbers = {"swings": float(count), "limit": limit}
    return Sign("reward_swings", Grade.WARN, first, last, detail, numbers)


def _error(numbers: list[float], width: int) -> float:
    """Standard error of the difference of two windows: from step to step, or between windows where that is larger.

    Between windows by second differences, which a straight or an evenly bent course leaves at a constant.
    """
    steps = noise(numbers) * math.sqrt(2 / width)
    blocks = [fmean(numbers[i : i + width]) for i in range(0, len(numbers) - width + 1, width)]
    bends = [c - b for b, c in pairwise([b - a for a, b in pairwise(blocks)])]
    if len(bends) < 4:
        return steps
    centre = median(bends)
    spread = _MAD_TO_SD * median(abs(bend - centre) for bend in bends)
    # A second difference has six times the variance of a block, the difference of two blocks twice.
    return max(steps, spread / math.sqrt(3))


def _distance(run: RunLog) -> tuple[bool, bool, str]:
    """Whether the policy is still at its reference, whether it moved away, and both in words."""
    found = kl_of(run)
    if found is None:
        return False, False, "the log holds no KL to hold it against"
    pairs = found[1]
    before, now = level(first_part(pairs)), level(last_part(pairs))
    seq = run.curve.known(Quantity.KL_SEQ)
    at_reference = abs(level(last_part(seq))) < _NEAR_SEQ if seq else abs(now) < _NEAR_TOKEN
    words = f"KL {both_units(run, pairs[0][0])} at step {pairs[0][0]}, {both_units(run, pairs[-1][0])} at the end"
    return at_reference, now > _GREW * max(before, 0.0), words


RULES: tuple[Rule, ...] = (
    Rule("the training reward does not fall", falls, ((Quantity.PROXY,),), least=LEAST),
)

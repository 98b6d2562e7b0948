"""A run's log in, what reward, gold and price say out: over-optimisation, drift, a penalty of the wrong size. Pure.

The loss is never judged: with centred advantages its value is about beta x KL, so it starts at 0 and
rises in a run that learns (field cases A34, E4).
"""

from __future__ import annotations

import math
from statistics import fmean

from kltune.diagnose.facts import ENDED_BY
from kltune.diagnose.fall_rules import goes_up_and_down
from kltune.diagnose.kl_rules import GONE, both_units, kl_of
from kltune.diagnose.price import coefficient, lacks_price, yardstick
from kltune.diagnose.result import Sign
from kltune.diagnose.rule import QUANTITY_WORDS, Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import (
    bound,
    first_part,
    last_part,
    level,
    moving_mean,
    noise,
    shown,
    values,
)
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity
from kltune.symptoms.gold import logged_gold_drop
from kltune.symptoms.symptom import SymptomKind

_CHANCE = 0.01
"""Of a finding where there is nothing, over all checkpoints together."""
_WINDOWS = 10
"""Pieces that a noisy gold curve is averaged in."""
_FEW = 12
"""Values with a standard error up to which each stands for itself."""
_DWARFS = 5.0
"""Spreads that a penalty may cost: no policy gains as much."""
_TOO_LARGE = 10.0
"""Spreads per nat: the best policy then gains a tenth of a spread at most (gain = spread^2 / beta)."""
_SWING_FACTOR = 3.0
_ROUNDING = 1e-5
"""Share of the reward's size."""
_FLAT, _GREW = 1.0, 1.5


def over_optimised(run: RunLog) -> Sign | None:
    """Gold past its peak while the proxy goes on."""
    gold = run.curve.known(Quantity.GOLD)
    if len(gold) < 4:
        return None
    errors = run.curve.known(Quantity.GOLD_SE)
    width = 1 if (errors and len(gold) <= _FEW) or len(gold) < 8 else max(2, len(gold) // _WINDOWS)
    means = moving_mean(gold, width)
    peak = max(means[: -2 * width] or means[:1], key=lambda window: window[2])
    end = means[-1]
    drop = peak[2] - end[2]
    one = level(errors) if errors else noise(values(gold))
    error = one * math.sqrt(2 / width)
    limit = bound(_CHANCE, len(means) / width) * error
    # Twice in a row, as the guard asks: one bad evaluation is no fall.
    is_clear = all(peak[2] - window[2] > limit for window in (means[-1], means[-1 - width]))
    is_few = not errors and len(gold) < 8
    is_guarded = run.facts.get(ENDED_BY) == SymptomKind.GOLD_DROP
    if not is_clear and not is_guarded and not (is_few and logged_gold_drop(run.curve)):
        return None
    risen = _proxy_change(run, peak, end)
    detail = (
        f"gold {_gold_text(peak)}, {_gold_text(end)} at the end: {shown(drop)} below "
        f"(standard error {shown(error)}, {'from the log' if errors else 'from the changes between steps'})"
    )
    numbers = {"peak_gold": peak[2], "peak_step": peak[1], "end_gold": end[2], "drop_se": error}
    if not is_clear and is_guarded:
        detail += "; within chance so, but prompt by prompt the trial's own guard saw it and ended the trial"
    elif not is_clear:
        detail += "; within chance, but it fell twice in a row"
    if risen is None:
        detail += "; the log holds no proxy to hold it against"
    else:
        numbers["proxy_change"] = risen
        detail += f"; the proxy changed by {risen:+.3g} meanwhile"
    near, gone = _kl_near(run, peak[1])
    detail += f"; KL at the peak {near}"
    # Gold that never rose, or fell with the proxy or after the policy was gone, has other causes.
    has_risen = peak[0] > gold[0][0] and not gone and (risen is None or risen > 0)
    name = "over_optimised" if has_risen else "gold_drop"
    is_lost = end[2] < gold[0][1]
    grade = Grade.FAIL if is_clear and is_lost else Grade.WARN
    return Sign(name, grade, peak[1], end[1], detail, numbers)


def _gold_text(window: tuple[int, int, float]) -> str:
    where = f"step {window[0]}" if window[0] == window[1] else f"steps {window[0]}-{window[1]}"
    return f"{shown(window[2])} ({where})"


def _kl_near(run: RunLog, step: int) -> tuple[str, bool]:
    """The KL logged nearest to a step, for people; and whether it had exploded by then."""
    found = kl_of(run)
    if found is None:
        return "not in the log", False
    nearest = min(found[1], key=lambda pair: abs(pair[0] - step))
    return both_units(run, nearest[0]), nearest[1] > GONE[found[0]]


def _proxy_change(
    run: RunLog, peak: tuple[int, int, float], end: tuple[int, int, float]
) -> float | None:
    """Proxy at the end less that at the peak; 0 where it is within noise."""
    proxy = run.curve.known(Quantity.PROXY)
    if not proxy:
        return None
    reach = max(3, len(proxy) // _WINDOWS)
    at = sorted(proxy, key=lambda pair: abs(pair[0] - (peak[0] + peak[1]) / 2))[:reach]
    late = [pair for pair in proxy if pair[0] <= end[1]][-reach:]
    change = fmean(values(late)) - fmean(values(at))
    error = noise(values(proxy)) * math.sqrt(2 / reach)
    return change if abs(change) >= error else 0.0


def no_gold(run: RunLog) -> Sign | None:
    """Proxy and KL grow and nothing tells whether that is progress."""
    proxy, found = run.curve.known(Quantity.PROXY), kl_of(run)
    if run.curve.has(Quantity.GOLD) or len(proxy) < 6 or found is None:
        return None
    rise = level(last_part(proxy)) - level(first_part(proxy))
    error = noise(values(proxy)) * math.sqrt(2 / max(3, len(proxy) // 4))
    grows = level(last_part(found[1])) > _GREW * level(first_part(found[1]))
    if rise <= 2 * error or not grows:
        return None
    last = found[1][-1][0]
    detail = (
        f"the reward rose by {shown(rise)} and the KL to {both_units(run, last)}; the log holds no gold, so whether "
        "that is progress or over-optimisation can't be told"
    )
    return Sign("gold_missing", Grade.PASS, proxy[0][0], proxy[-1][0], detail, {"proxy_rise": rise})


def drift_without_gain(run: RunLog) -> Sign | None:
    """The KL goes on growing in the second half while the reward doesn't."""
    proxy, found = run.curve.known(Quantity.PROXY), kl_of(run)
    if len(proxy) < 8 or found is None or len(found[1]) < 8:
        return None
    second = last_part(proxy, share=0.5)
    middle, end = level(second[: len(second) // 2]), level(second[len(second) // 2 :])
    error = noise(values(second)) * math.sqrt(4 / len(second))
    start, start_kl = level(first_part(proxy)), level(first_part(found[1]))
    whole = level(last_part(proxy)) - start
    whole_error = noise(values(proxy)) * math.sqrt(8 / len(proxy))
    late = last_part(found[1], share=0.5)
    kl_middle, kl_end = level(late[: len(late) // 2]), level(late[len(late) // 2 :])
    is_far = kl_end > (0.1 if found[0] is Quantity.KL_TOKEN else 10.0)
    is_late = end - middle <= _FLAT * error and kl_end >= _GREW * kl_middle
    # A straight course from 0 grows by less than that over its second half.
    is_whole = whole <= 2 * whole_error and kl_end >= _GREW * start_kl
    if not is_far or not (is_late or is_whole):
        return None
    first, last = late[0][0], late[-1][0]
    if is_whole:
        first, middle, error, kl_middle = proxy[0][0], start, whole_error, start_kl
    detail = (
        f"steps {first}-{last}: the reward went from {shown(middle)} to {shown(end)} (noise {shown(error)}), the KL from "
        f"{shown(kl_middle)} to {both_units(run, last)}"
    )
    numbers = {"proxy_change": end - middle, "kl_factor": kl_end / max(kl_middle, 1e-12)}
    return Sign("drift_without_gain", Grade.WARN, first, last, detail, numbers)


def dwarfs_reward(run: RunLog) -> Sign | None:
    """The penalty paid is several times the reward's spread (field case E3)."""
    beta, stick, kl = coefficient(run), yardstick(run), run.curve.known(Quantity.KL_SEQ)
    if beta is None or stick is None or not kl or beta.value <= 0:
        return None
    late = last_part(kl, share=0.5)
    penalty = beta.value * level([(step, abs(value)) for step, value in late])
    ratio = penalty / stick.spread
    if ratio < _DWARFS:
        return None
    how = f" ({beta.how})" if beta.how else ""
    detail = (
        f"mean penalty {shown(penalty)} = beta {shown(beta.value)}{how} x {shown(penalty / beta.value)} nats/sequence, "
        f"{ratio:.4g} times the {stick.words} ({shown(stick.spread)}), steps {late[0][0]}-{late[-1][0]}"
    )
    numbers = {"penalty": penalty, "spread": stick.spread, "ratio": ratio, "beta": beta.value}
    return Sign("penalty_dwarfs_reward", Grade.WARN, late[0][0], late[-1][0], detail, numbers)


def beta_too_large(run: RunLog) -> Sign | None:
    """At this price even the best policy stays at the reference.

    Rewards with spread s gain s^2 / beta at most at the optimum of reward - beta x KL, at a KL of
    s^2 / (2 beta^2).
    """
    beta, stick = coefficient(run), yardstick(run)
    if beta is None or stick is None or beta.value < _TOO_LARGE * stick.spread:
        return None
    share = stick.spread / beta.value
    how = f" ({beta.how})" if beta.how else ""
    detail = (
        f"beta {shown(beta.value)}{how} against a {stick.words} of {shown(stick.spread)}: the best policy at "
        f"this price gains {shown(share)} spreads, at {shown(share**2 / 2)} nats/sequence"
    )
    steps = run.curve.steps
    numbers = {"beta": beta.value, "spread": stick.spread, "best_kl_seq": share**2 / 2}
    return Sign("beta_too_large", Grade.FAIL, steps[0], steps[-1], detail, numbers)


def swings(run: RunLog) -> Sign | None:
    """The mean reward jumps about far more than it did at first."""
    proxy = run.curve.known(Quantity.PROXY)
    if len(proxy) < 18:
        return None
    early = noise(values(first_part(proxy, share=1 / 3)))
    late_part = last_part(proxy, share=1 / 3)
    late = noise(values(late_part))
    spreads = run.curve.known(Quantity.PROXY_STD)
    floor = 0.5 * level(first_part(spreads)) if spreads else 0.0
    # float32 has seven digits: what moves in the last two is no swing.
    floor = max(floor, _ROUNDING * max(map(abs, values(proxy))))
    if early <= 0 or late < _SWING_FACTOR * early or late < floor:
        return goes_up_and_down(run)
    first, last = late_part[0][0], late_part[-1][0]
    detail = (
        f"the mean reward moves by {shown(late)} from step to step in steps {first}-{last}, "
        f"{shown(late / early)} times as much as in the first third"
    )
    return Sign("reward_swings", Grade.WARN, first, last, detail, {"late": late, "early": early})


def critic_is_blind(run: RunLog) -> Sign | None:
    """A critic that knows less than a constant."""
    pairs = last_part(run.curve.known(Quantity.EXPLAINED_VARIANCE), share=0.5)
    middle = level(pairs)
    if middle >= 0:
        return None
    first, last = pairs[0][0], pairs[-1][0]
    detail = f"explained variance {shown(middle)} in steps {first}-{last}; a constant has 0"
    return Sign("critic", Grade.WARN, first, last, detail, {"explained_variance": middle})


_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)


def _lacks_gold(run: RunLog) -> str:
    return "" if run.curve.has(Quantity.GOLD) else QUANTITY_WORDS[Quantity.GOLD]


RULES: tuple[Rule, ...] = (
    Rule("gold holds what it reached", over_optimised, ((Quantity.GOLD,),), least=4),
    Rule(
        "gold tells progress from over-optimisation",
        no_gold,
        ((Quantity.PROXY,), _KL),
        lacks_after=_lacks_gold,
    ),
    Rule("the KL buys reward", drift_without_gain, ((Quantity.PROXY,), _KL), least=8),
    Rule(
        "the penalty is of the size of the reward",
        dwarfs_reward,
        ((Quantity.KL_SEQ,),),
        lacks_price,
        least=8,
    ),
    Rule("beta lets the policy move", beta_too_large, lacks_else=lacks_price),
    Rule("the reward does not swing", swings, ((Quantity.PROXY,),), least=18),
    Rule(
        "the critic explains returns",
        critic_is_blind,
        ((Quantity.EXPLAINED_VARIANCE,),),
        is_optional=True,
        least=8,
    ),
)

"""A run's log in, what its KL coefficient is and what it weighs against the reward out. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kltune.diagnose.rule import QUANTITY_WORDS
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import level, shown, slope
from kltune.symptoms.curve import Quantity

_CLEAR = 6.0
"""Standard errors that a slope must lie above 0 before a coefficient is read off it."""
_REWARD_ALGORITHMS = frozenset({"ppo", "rloo", "reinforce"})
"""They pay the KL in the reward in every framework unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """What the run pays per nat."""

    value: float
    how: str
    """How it is known, for people; empty where the log has it."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a penalty of beta x sequence KL is held against."""

    spread: float
    words: str
    """What the spread is, for people."""


def coefficient(run: RunLog) -> Coefficient | None:
    """The run's coefficient as logged or set; else read off how the loss moves with the KL.

    Advantages are centred, so a loss is about beta x KL (field case A34): in a log of TRL's GRPO,
    which doesn't hold beta, the slope of the loss on the KL is beta.
    """
    logged = run.curve.known(Quantity.BETA)
    if logged:
        return Coefficient(level(logged), "")
    fact = run.facts.get("beta")
    if isinstance(fact, int | float):
        return Coefficient(float(fact), "")
    if Quantity.KL_TOKEN not in run.readings:
        return None
    part = run.curve.has(Quantity.LOSS_KL)
    kl = dict(run.curve.known(Quantity.KL_TOKEN))
    loss = dict(run.curve.known(Quantity.LOSS_KL if part else Quantity.LOSS))
    both = [step for step in kl if step in loss]
    found = slope([kl[step] for step in both], [loss[step] for step in both])
    if found is None or found[0] <= _CLEAR * found[1]:
        return None
    error = f" +- {shown(found[1])}" if found[1] > 0 else ""
    how = f"not in the log; the loss rises by {shown(found[0])}{error} per nat/token"
    return Coefficient(found[0], how)


def yardstick(run: RunLog) -> Yardstick | None:
    """What one nat's price competes with: the reward's spread where the KL is paid in the reward, else the advantages' 1."""
    if is_paid_in_reward(run):
        spread = run.curve.known(Quantity.PROXY_STD)
        value = level(spread) if spread else math.nan
        return Yardstick(value, "spread of the reward") if value > 0 else None
    advantages = [x for x in run.curve.known(Quantity.ADVANTAGE_STD) if x[1] > 0]
    value = level(advantages) if advantages else 1.0
    return Yardstick(value, "spread of the normalised advantages")


def is_paid_in_reward(run: RunLog) -> bool:
    """Whether beta is raw reward per nat: by the run's unit, penalty, algorithm or framework, in this order."""
    if "beta_unit" in run.facts:
        return run.facts["beta_unit"] == "reward"
    place = str(run.facts.get("penalty", "")).rpartition("-")[2]
    if place in ("reward", "loss"):
        return place == "reward"
    algorithm = str(run.facts.get("algorithm", "")).lower()
    # OpenRLHF pays in the reward unless told otherwise.
    return algorithm in _REWARD_ALGORITHMS or (not algorithm and run.framework == "openrlhf")


def lacks_price(run: RunLog) -> str:
    """What a log lacks to hold the penalty against the reward; empty: nothing."""
    if coefficient(run) is None:
        return QUANTITY_WORDS[Quantity.BETA]
    return "" if yardstick(run) else QUANTITY_WORDS[Quantity.PROXY_STD]

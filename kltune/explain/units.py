"""A KL, a beta and a horizon in one unit in; the same in the other units out, and penalty against reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.errors import SpecError
from kltune.explain.flags import above_zero, at_least_1, finite, not_negative, one_of, one_or_more
from kltune.explain.frameworks import FRAMEWORKS, FrameworkLog
from kltune.units import beta_of_coefficient, kl_per_sequence, kl_per_token, loss_coefficient

DROWNS: Final = 10.0
"""Mean penalty / spread of the reward above which the reward is hardly seen."""

UNFELT: Final = 0.01
"""Below which the penalty is hardly seen."""

KL_TOKEN: Final = 0.05


class Balance(StrEnum):
    """Mean penalty against the spread of the reward."""

    DROWNS = "penalty drowns the reward"
    FELT = "both are felt"
    UNFELT = "penalty is hardly felt"
    NEGATIVE = "below 0: no mean penalty of a KL"


@dataclass(frozen=True, slots=True)
class UnitsQuestion:
    """What a person has, in the units that they have it in."""

    tokens: float = 40
    """Mean tokens of a completion."""
    kl_token: float | None = None
    """Nats per token; at most one of the two is given."""
    kl_seq: float | None = None
    beta: float = 0.04
    source: str = "trl-grpo"
    """Key of `FRAMEWORKS`: what `beta` is a price of."""
    sigma_r: float = 0.5
    """Standard deviation of the raw reward within a group of completions of one prompt."""
    penalty: float | None = None
    """Mean KL penalty of a completion, raw reward; none: beta x KL."""
    horizon: float = 640
    """Sequences."""
    rows: int = 64
    """Sequences of a step where the horizon comes from."""
    rows_to: int = 8192
    """Sequences of a step where it goes to."""


@dataclass(frozen=True, slots=True)
class UnitsFacts:
    """What `explain units` shows."""

    tokens: float
    kl_token: float
    """Nats."""
    kl_seq: float
    """Nats."""
    kl_token_bits: float
    kl_seq_bits: float
    beta: float
    source: str
    sigma_r: float
    beta_reward: float
    """Raw reward per nat of sequence KL."""
    beta_advantage: float
    """Beside advantages that were divided by the group's standard deviation."""
    penalty: float
    """Mean KL penalty of a completion, raw reward."""
    penalty_ratio: float
    """penalty / sigma_r; below 0 with it."""
    balance: Balance
    gain: float
    """rows / horizon: what keeps a controller's speed."""
    horizon: float
    rows: int
    rows_to: int
    horizon_to: float
    frameworks: tuple[FrameworkLog, ...]


def explain_units(question: UnitsQuestion) -> UnitsFacts:
    """Compute everything of the screen.

    Raises:
        SpecError: a flag's value makes no sense.
    """
    _check(question)
    token, seq = _both_units(question)
    if FRAMEWORKS[question.source].beta_in == "advantage":
        advantage = question.beta
        reward = beta_of_coefficient(question.beta, "reward", question.sigma_r)
    else:
        reward = question.beta
        advantage = loss_coefficient(question.beta, "reward", question.sigma_r)
    penalty = reward * seq if question.penalty is None else question.penalty
    ratio = penalty / question.sigma_r
    return UnitsFacts(
        tokens=question.tokens,
        kl_token=token,
        kl_seq=seq,
        kl_token_bits=token / math.log(2),
        kl_seq_bits=seq / math.log(2),
        beta=question.beta,
        source=question.source,
        sigma_r=question.sigma_r,
        beta_reward=reward,
        beta_advantage=advantage,
        penalty=penalty,
        penalty_ratio=ratio,
        balance=_balance(ratio),
        gain=question.rows / question.horizon,
        horizon=question.horizon,
        rows=question.rows,
        rows_to=question.rows_to,
        horizon_to=question.horizon * question.rows_to / question.rows,
        frameworks=tuple(FRAMEWORKS.values()),
    )


def _both_units(question: UnitsQuestion) -> tuple[float, float]:
    if question.kl_seq is not None:
        return kl_per_token(question.kl_seq, question.tokens), question.kl_seq
    token = KL_TOKEN if question.kl_token is None else question.kl_token
    return token, kl_per_sequence(token, question.tokens)


def _balance(ratio: float) -> Balance:
    if ratio < 0:
        return Balance.NEGATIVE
    if ratio > DROWNS:
        return Balance.DROWNS
    return Balance.UNFELT if ratio < UNFELT else Balance.FELT


def _check(question: UnitsQuestion) -> None:
    one_or_more("--tokens", question.tokens)
    if question.kl_token is not None and question.kl_seq is not None:
        raise SpecError(
            "--kl-token: must not be given together with --kl-seq, which is the same KL "
            f"(got {question.kl_token:g} and {question.kl_seq:g})"
        )
    finite("--kl-token", question.kl_token or 0.0)
    finite("--kl-seq", question.kl_seq or 0.0)
    not_negative("--beta", question.beta)
    one_of("--from", question.source, FRAMEWORKS)
    above_zero("--sigma-r", question.sigma_r)
    finite("--penalty", question.penalty or 0.0)
    above_zero("--horizon", question.horizon)
    at_least_1("--rows", question.rows)
    at_least_1("--rows-to", question.rows_to)

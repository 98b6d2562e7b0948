"""Two distributions over a few answers in; what their KL is, costs and tells out. All in nats."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kltune.explain.distribution import (
    Pair,
    answer_name,
    contributions,
    deviation,
    kl,
    log_ratios,
    mean,
    unseen,
)
from kltune.explain.estimators import k3

MOVED: Final = 0.10
"""Probability that the price list moves."""

RARE: Final = 0.005
"""Probability of the answer that is added to the price list."""

ODDS: Final = 20.0
"""Odds at which a reader is taken to be convinced."""

SAMPLE_SIZES: Final = (10, 100, 10_000)
SEED: Final = 1
"""One whose means lie within two standard errors of the KL, as most do; others by ``--seed``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer's part of the KL."""

    name: str
    reference: float
    policy: float
    log_ratio: float
    """log policy - log reference, nats: infinite where one of them never gives the answer."""
    contribution: float
    """policy x log_ratio, nats; the contributions sum to the KL."""


@dataclass(frozen=True, slots=True)
class Move:
    """What it costs to move `MOVED` from the reference's likeliest answer to another."""

    giver: str
    taker: str
    giver_before: float
    """Probability under the reference; the policy has `MOVED` less."""
    taker_before: float
    is_added: bool
    """The taker is a rare answer that the list adds; its probability is taken from the giver first."""
    kl: float
    times: float
    """kl / kl of the cheapest move."""


@dataclass(frozen=True, slots=True)
class Sample:
    """KL as estimated from so many answers of the policy."""

    answers: int
    k1: float
    k1_se: float
    """Standard error, from the sample's own spread."""
    k3: float
    k3_se: float


@dataclass(frozen=True, slots=True)
class KLFacts:
    """What `explain kl` shows of two distributions."""

    answers: tuple[Answer, ...]
    kl: float
    """KL(policy ‖ reference), nats; infinite where the reference never gives an answer of the policy."""
    kl_bits: float
    kl_other_way: float
    """KL(reference ‖ policy), nats."""
    log_ratio_sd: float
    """Standard deviation of one answer's log-ratio over the policy's answers, nats."""
    negative_share: float
    """Share of the policy's answers whose log-ratio is below 0."""
    odds: float
    answers_for_odds: int | None
    """The policy's answers that bring a reader to `odds` against the reference; none at KL 0."""
    moves: tuple[Move, ...]
    seed: int
    samples: tuple[Sample, ...]
    """Empty where the KL is infinite."""
    k3_mean: float
    """Expectation of k3, nats: the KL - unseen."""
    unseen: float
    """Probability of the reference on answers that the policy never gives."""


def explain_kl(pair: Pair, seed: int = SEED) -> KLFacts:
    """Compute everything of the screen."""
    p, q = pair.policy, pair.reference
    ratios = log_ratios(p, q)
    forward = kl(p, q)
    rows = zip(pair.names, q, p, ratios, contributions(p, q), strict=True)
    return KLFacts(
        answers=tuple(Answer(*row) for row in rows),
        kl=forward,
        kl_bits=forward / math.log(2),
        kl_other_way=kl(q, p),
        log_ratio_sd=deviation(p, ratios),
        negative_share=math.fsum(w for w, u in zip(p, ratios, strict=True) if u < 0),
        odds=ODDS,
        answers_for_odds=answers_for_odds(forward),
        moves=price_list(q),
        seed=seed,
        samples=draw(p, ratios, seed) if math.isfinite(forward) else (),
        k3_mean=mean(p, [k3(u) for u in ratios]),
        unseen=unseen(p, q),
    )


def answers_for_odds(kl_per_answer: float) -> int | None:
    """Answers until a reader at even odds holds `ODDS` to 1 for the policy; none where there is no evidence.

    Each answer adds its log-ratio to the reader's log-odds (Bayes), which is the KL on average.
    """
    if kl_per_answer <= 0:
        return None
    return max(1, round(math.log(ODDS) / kl_per_answer))


def move_cost(reference: Sequence[float], giver: int, taker: int, moved: float = MOVED) -> float:
    """KL after ``moved`` of probability went from one answer to another, nats."""
    policy = list(reference)
    policy[giver] -= moved
    policy[taker] += moved
    return kl(policy, reference)


def price_list(reference: Sequence[float]) -> tuple[Move, ...]:
    """The same move to the second likeliest answer, to the rarest, and to one that is `RARE`.

    Empty where the likeliest answer can't give that much.
    """
    order = sorted(range(len(reference)), key=lambda place: -reference[place])
    giver, second, last = order[0], order[1], order[-1]
    if reference[giver] <= MOVED + RARE or reference[second] == 0:
        return ()
    takers = dict.fromkeys(place for place in (second, last) if reference[place] > 0)
    with_rare = [*reference, RARE]
    with_rare[giver] -= RARE
    # All rows start from the list that has the rare answer: the giver is the same in each.
    costs = {taker: move_cost(with_rare, giver, taker) for taker in (*takers, len(reference))}
    cheapest = min(costs.values())
    return tuple(
        Move(
            giver=answer_name(giver),
            taker=answer_name(taker),
            giver_before=with_rare[giver],
            taker_before=with_rare[taker],
            is_added=taker == len(reference),
            kl=cost,
            times=cost / cheapest,
        )
        for taker, cost in costs.items()
    )


def draw(policy: Sequence[float], ratios: Sequence[float], seed: int) -> tuple[Sample, ...]:
    """The first so many of one stream of the policy's answers, and what k1 and k3 make of them."""
    drawn = random.Random(seed).choices(ratios, policy, k=max(SAMPLE_SIZES))
    return tuple(_sample(drawn[:size]) for size in SAMPLE_SIZES)


def _sample(drawn: list[float]) -> Sample:
    k1, k1_se = _mean_and_error(drawn)
    k3_mean, k3_se = _mean_and_error([k3(u) for u in drawn])
    return Sample(len(drawn), k1, k1_se, k3_mean, k3_se)


def _mean_and_error(values: list[float]) -> tuple[float, float]:
    count = len(values)
    centre = math.fsum(values) / count
    spread = math.fsum((v - centre) ** 2 for v in values) / (count - 1)
    return centre, math.sqrt(spread / count)

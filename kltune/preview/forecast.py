"""Scored completions and what they are of in, the whole forecast out."""

from __future__ import annotations

import numpy as np

from kltune.preview.curves import (
    Floats,
    Scored,
    average,
    resamples,
    spread_P,
    trace_best_of_n,
    trace_tilt,
)
from kltune.preview.reading import MIN_PROMPTS, agreement, order, read_curve
from kltune.preview.result import Forecast, Interval, Scorer, Subject, TrainLook, interval
from kltune.preview.suggest import Search, Seen, needs, no_range, suggest


def forecast(
    scored: Scored,
    subject: Subject,
    search: Search,
    train: Scored | None = None,
    notes: tuple[str, ...] = (),
) -> Forecast:
    """Both curves, what they say, and the ranges that follow."""
    num_prompts = len(scored.proxy_PN)
    shares_BP = resamples(num_prompts, subject.seed)
    traced = (trace_tilt(scored), trace_best_of_n(scored))
    tilt, best_of_n = (average(one, shares_BP) for one in traced)
    readings = order(tuple(read_curve(one, shares_BP) for one in traced))
    agreed = agreement(scored, shares_BP)
    look = None if train is None else _train_look(train, subject.seed)
    flat = _flat(scored)
    is_better = look is not None and look.agrees_better(agreed)
    seen = Seen(readings[0], tilt, best_of_n, is_train_better=is_better)
    return Forecast(
        subject=subject,
        sigma_r=_sigma_r(scored, shares_BP),
        agreement=agreed,
        curves=(tilt, best_of_n),
        readings=readings,
        suggestion=no_range(flat, search) if flat else suggest(seen, search),
        needed=() if flat else needs(tilt, best_of_n, scored),
        seconds=0.0,
        notes=(*notes, *_doubts(scored, num_prompts)),
        train=look,
        flat=flat,
    )


def _flat(scored: Scored) -> tuple[Scorer, ...]:
    """What gives every completion of a prompt the same score, whoever drew it."""
    found: list[Scorer] = []
    if not np.ptp(scored.proxy_PN, axis=1).any():
        found.append("proxy")
    if not np.ptp(scored.gold_PN, axis=1).any():
        found.append("gold")
    return tuple(found)


def _sigma_r(scored: Scored, shares_BP: Floats) -> Interval:
    spreads_P = spread_P(scored.of_reference().proxy_PN)
    return interval(float(spreads_P.mean()), shares_BP @ spreads_P)


def _train_look(train: Scored, seed: int) -> TrainLook:
    num_prompts, num = train.proxy_PN.shape
    shares_BP = resamples(num_prompts, seed)
    agreed = agreement(train, shares_BP)
    return TrainLook(agreed, _sigma_r(train, shares_BP), num_prompts, num)


def _doubts(scored: Scored, num_prompts: int) -> list[str]:
    notes: list[str] = []
    if num_prompts < MIN_PROMPTS:
        notes.append(
            f"{num_prompts} prompts are too few to claim anything about others (at least {MIN_PROMPTS})"
        )
    own = scored.of_reference()
    if np.array_equal(own.proxy_PN, own.gold_PN):
        notes.append(
            "gold and proxy gave every completion the same score; gold must be a judgement that training never sees, "
            "and a sweep refuses this spec"
        )
    return notes

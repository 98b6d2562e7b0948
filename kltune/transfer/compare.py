"""Comparable studies of several sizes in, what transfers and what does not out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kltune.spec.trial import ControllerKind
from kltune.statistics.agreement import Agreement, rank_agreement
from kltune.statistics.drift import (
    FEWEST_POINTS,
    FEWEST_SETTINGS,
    Array,
    Drift,
    Interval,
    Profile,
    known_profile,
    paired_drift,
    parabola_profile,
    profile_drift,
)
from kltune.transfer.result import (
    Kind,
    MatchedSetting,
    Quantity,
    Ranking,
    Sized,
    TransferResult,
)
from kltune.transfer.rules import Subject, Tried, check_comparable, match_trials
from kltune.transfer.verdict import judge_agreement, judge_drift
from kltune.trial.words import KL_UNIT, beta_unit_words, origin_words, setting_short

_NONE: Final = Interval(None)

At = Callable[[Tried, Subject], float | None]
"""Where a trial lies on the axis whose best point is sought; none: it has no say."""


def compare_sizes(subjects: Sequence[Subject], seed: int) -> TransferResult:
    """Compare studies that differ in nothing but the model's size.

    Raises:
        SpecError: they differ in more, or not in size.
    """
    check_comparable(subjects)
    ordered = sorted(subjects, key=lambda s: s.parameters)
    matched, unmatched = match_trials(ordered)
    return TransferResult(
        studies=tuple(_sized(s) for s in ordered),
        matched=tuple(_matched(row, ordered[0]) for row in matched),
        unmatched=unmatched,
        rankings=tuple(_rankings(ordered, matched, seed)),
        quantities=tuple(_quantities(ordered, matched)),
        notes=tuple(_notes(ordered)),
    )


def _sized(subject: Subject) -> Sized:
    return Sized(
        study=subject.study,
        base=subject.spec.model.base,
        parameters=subject.parameters,
        learning_rate=subject.spec.trainer.learning_rate,
        sigma_r=subject.sigma_r,
        judged=len(subject.judged),
        budget=subject.spec.budget.trials,
    )


def _matched(row: Sequence[Tried], subject: Subject) -> MatchedSetting:
    first = row[0]
    is_given = first.origin == "zero" or first.origin.startswith("baseline")
    label = (
        origin_words(first.origin)
        if is_given
        else setting_short(first.setting, subject.spec.kl_unit)
    )
    return MatchedSetting(label, tuple(float(t.value or 0.0) for t in row))


def _rankings(
    subjects: Sequence[Subject], matched: Sequence[Sequence[Tried]], seed: int
) -> list[Ranking]:
    rankings: list[Ranking] = []
    for i, j in itertools.combinations(range(len(subjects)), 2):
        rows = [(row[i].scores, row[j].scores) for row in matched]
        found = _agreement(rows, seed)
        names = subjects[i].study, subjects[j].study
        kind, words = judge_agreement(*names, found)
        rankings.append(
            Ranking(
                *names,
                correlation=_NONE if found is None else found.correlation,
                reliability=None if found is None else found.reliability,
                num_settings=len(rows) if found is None else found.num_settings,
                num_pairs=0 if found is None else found.num_pairs,
                num_alike=0 if found is None else found.num_alike,
                kind=kind,
                words=words,
            )
        )
    return rankings


def _agreement(
    rows: Sequence[tuple[tuple[float, ...], tuple[float, ...]]], seed: int
) -> Agreement | None:
    """Over the settings whose scores were kept on both sides for the same number of prompts."""
    width = max((len(a) for a, _ in rows), default=0)
    kept = [pair for pair in rows if len(pair[0]) == len(pair[1]) == width]
    if not width or not kept:
        return None
    a, b = (np.array([pair[side] for pair in kept]) for side in (0, 1))
    return rank_agreement(a, b, seed)


def _quantities(subjects: Sequence[Subject], matched: Sequence[Sequence[Tried]]) -> list[Quantity]:
    spec = subjects[0].spec
    beta_unit = beta_unit_words(spec.beta_unit, spec.trainer.credit)
    quantities = [
        _best("beta", "Best beta", beta_unit, subjects, _log_beta),
        _kl_peak(subjects, matched),
    ]
    if any(t.setting.target_kl is not None for s in subjects for t in s.judged):
        unit = KL_UNIT[spec.kl_unit]
        quantities.append(_best("target_kl", "Best target_kl", unit, subjects, _log_target))
    if any(t.setting.horizon is not None for s in subjects for t in s.judged):
        unit = "n/horizon, a step"
        quantities.append(_best("gain", "Best controller gain", unit, subjects, _log_gain))
    quantities.append(_reached(subjects, matched))
    return quantities


def _best(key: str, name: str, unit: str, subjects: Sequence[Subject], at: At) -> Quantity:
    """Where gold is highest along one axis."""
    profiles: list[Profile] = []
    by_study: list[Interval] = []
    lacking: list[str] = []
    for subject in subjects:
        points = [(x, t.value) for t in subject.judged if (x := at(t, subject)) is not None]
        logs, values = (np.array([p[side] for p in points], dtype=float) for side in (0, 1))
        profile = parabola_profile(logs, values)
        by_study.append(_NONE if profile is None else profile.interval().exp())
        if profile is None:
            lacking.append(f"{subject.study} has {len(points)} such trials")
        else:
            profiles.append(profile)
    if lacking:
        why = (
            f"{FEWEST_POINTS} trials that vary in it are needed in each study; {', '.join(lacking)}"
        )
        return _untold(key, name, unit, by_study, why)
    drift = profile_drift(profiles, _log_sizes(subjects))
    return _judged(key, name, unit, by_study, drift, subjects)


def _log_beta(trial: Tried, _: Subject) -> float | None:
    # A controller moves beta away from where it starts.
    is_held = trial.setting.controller is ControllerKind.FIXED
    return math.log(trial.setting.beta) if is_held and trial.setting.beta > 0 else None


def _log_target(trial: Tried, _: Subject) -> float | None:
    target = trial.setting.target_kl
    return math.log(target) if trial.setting.controller.has_target and target is not None else None


def _log_gain(trial: Tried, subject: Subject) -> float | None:
    horizon = trial.setting.horizon
    return None if horizon is None else math.log(subject.spec.trainer.rows / horizon)


def _kl_peak(subjects: Sequence[Subject], matched: Sequence[Sequence[Tried]]) -> Quantity:
    """By the law where it can say in every study, else by the settings whose gold turned in all."""
    unit = "nats/sequence"
    laws = [_logged(s.law_peak) for s in subjects]
    profiles = [p for law in laws if (p := known_profile(law)) is not None]
    if len(profiles) == len(subjects):
        by_study = [s.law_peak for s in subjects]
        drift = profile_drift(profiles, _log_sizes(subjects))
        return _judged("kl_peak", "KL at which gold peaks (law)", unit, by_study, drift, subjects)
    name = "KL at the gold peak of the same settings"
    rows = [[t.peak_kl for t in row] for row in matched]
    return _paired("kl_peak", name, rows, subjects, "whose gold turned in every study")


def _reached(subjects: Sequence[Subject], matched: Sequence[Sequence[Tried]]) -> Quantity:
    """KL at the latest evaluation that all studies have of a setting."""
    rows: list[list[float | None]] = []
    for row in matched:
        shared = set.intersection(*(set(t.kl_by_step) for t in row))
        rows.append([t.kl_by_step[max(shared)] if shared else None for t in row])
    return _paired(
        "kl_reached",
        "KL that the same setting reaches",
        rows,
        subjects,
        "that moved in every study",
    )


def _paired(
    key: str,
    name: str,
    rows: Sequence[Sequence[float | None]],
    subjects: Sequence[Subject],
    which: str,
) -> Quantity:
    unit = "nats/sequence"
    whole = [[math.log(x) for x in row if x is not None and x > 0] for row in rows]
    whole = [row for row in whole if len(row) == len(subjects)]
    logs: Array = np.array(whole, dtype=float).reshape(len(whole), len(subjects)).T
    middles = [Interval(math.exp(float(line.mean()))) if line.size else _NONE for line in logs]
    drift = paired_drift(logs, _log_sizes(subjects))
    if drift is None:
        why = f"{FEWEST_SETTINGS} settings {which} are needed, there are {len(whole)}"
        return _untold(key, name, unit, middles, why)
    return _judged(key, name, unit, middles, drift, subjects)


def _untold(key: str, name: str, unit: str, by_study: Sequence[Interval], why: str) -> Quantity:
    words = f"{name}: can't tell. {why[0].upper()}{why[1:]}."
    return Quantity(key, name, unit, tuple(by_study), _NONE, (), _NONE, Kind.UNKNOWN, words)


def _judged(
    key: str,
    name: str,
    unit: str,
    by_study: Sequence[Interval],
    drift: Drift,
    subjects: Sequence[Subject],
) -> Quantity:
    kind, words = judge_drift(name, _span(subjects), drift)
    return Quantity(
        key, name, unit, tuple(by_study), drift.factor, drift.pairs, drift.exponent, kind, words
    )


def _logged(interval: Interval) -> Interval:
    """Logs; an end at 0 or infinity is none."""
    return Interval(
        *(
            math.log(x) if x is not None and math.isfinite(x) and x > 0 else None
            for x in interval.parts
        )
    )


def _log_sizes(subjects: Sequence[Subject]) -> list[float]:
    return [math.log(s.parameters) for s in subjects]


def _span(subjects: Sequence[Subject]) -> str:
    return f"from {size_words(subjects[0].parameters)} to {size_words(subjects[-1].parameters)} parameters"


def size_words(parameters: int) -> str:
    """``0.35 M``, ``1.5 B``."""
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2g} B"
    return f"{parameters / 1e6:.2g} M" if parameters < 1e8 else f"{parameters / 1e6:.0f} M"


def _notes(subjects: Sequence[Subject]) -> list[str]:
    notes = [
        f"{s.study} has {len(s.trials)} of the {s.spec.budget.trials} trials that its spec asks for: "
        "more may change this"
        for s in subjects
        if len(s.trials) < s.spec.budget.trials
    ]
    rates = {s.study: s.spec.trainer.learning_rate for s in subjects}
    if len(set(rates.values())) > 1 and subjects[0].spec.search.learning_rate is None:
        listed = ", ".join(f"{rate:g} in {study}" for study, rate in rates.items())
        notes.append(f"the learning rate differs ({listed}): what is said of size is said of both")
    notes.append(
        f"sizes {_span(subjects)} were looked at; nothing is known of models beyond them. Each study is one "
        "seed, whose luck is in no interval of KL. Each verdict is right in 95 of 100 on its own"
    )
    return notes

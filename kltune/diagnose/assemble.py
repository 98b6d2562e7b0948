"""One run as its source has it in, the same run in kltune's quantities with the reason for every unit out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from kltune.diagnose.as_set import as_set
from kltune.diagnose.facts import LOSS_MODE, facts_of
from kltune.diagnose.known import SEQ, TOKEN, UNDECIDED, Known, Transform
from kltune.diagnose.left_out import left_out
from kltune.diagnose.names import TITLES, family, framework_of, known_names
from kltune.diagnose.runlog import Reading, RunLog
from kltune.diagnose.sources.raw import RawRun
from kltune.diagnose.units import TOKEN_CEILING, infer, other_unit, told
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Curve, Quantity

_KL: Final = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
_K1: Final = {Quantity.KL_TOKEN: Quantity.K1_TOKEN, Quantity.KL_SEQ: Quantity.K1_SEQ}
_NAN_IS_MISSING: Final = (Quantity.EXPLAINED_VARIANCE, Quantity.KL_PROXY_CORR, Quantity.K1_SEQ_SE)
"""Undefined where nothing varies, which is no fault of the run."""
_UNITS: Final = {"token": TOKEN, "sequence": SEQ}


@dataclass(slots=True)
class _Reader:
    """What was read so far of one run."""

    raw: RawRun
    framework: str
    series: dict[Quantity, dict[int, float]] = field(
        default_factory=dict[Quantity, dict[int, float]]
    )
    readings: dict[Quantity, Reading] = field(default_factory=dict[Quantity, Reading])
    notes: list[str] = field(default_factory=list[str])
    used: set[str] = field(default_factory=set[str])
    unread_kl: dict[str, str] = field(default_factory=dict[str, str])
    spare: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Names of a quantity that a better name was found for, by that name."""
    without_use: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Names that nothing is made of, by the reason."""

    def put(self, reading: Reading, values: dict[int, float]) -> None:
        self.series.setdefault(reading.quantity, values)
        self.readings.setdefault(reading.quantity, reading)


def to_run_log(raw: RawRun, kl_unit: KLUnit | None, mean_tokens: float | None) -> RunLog:
    """Turn a run as it was logged into kltune's quantities.

    ``kl_unit`` overrides the unit of the run's KL; ``mean_tokens`` is the mean completion length
    where the log has none.
    """
    framework = raw.framework or framework_of(raw.names)
    if framework == "trl":
        # A trainer_state.json is of any of TRL's trainers.
        named = framework_of(raw.names)
        framework = named if family(named) == "trl" else framework
    reader = _Reader(raw, framework, notes=list(raw.notes))
    kl: list[Known] = []
    for known in known_names(raw.names, framework):
        reader.used.add(known.name)
        if known.quantity is None:
            reader.without_use.setdefault(known.why, []).append(known.name)
        elif known.is_kl:
            kl.append(known)
        elif known.quantity not in reader.series:
            _take(reader, known, known.quantity)
        elif known.name != reader.readings[known.quantity].name:
            better = reader.readings[known.quantity].name
            reader.spare.setdefault(better, []).append(known.name)
    _drop_false_gold(reader)
    _note_texts(reader)
    _take_kl(reader, kl, kl_unit, mean_tokens)
    ignored = tuple(name for name in raw.names if name not in reader.used)
    # The other metrics of kltune's own trials are in its report.
    asked = () if framework == "kltune" else ignored
    reader.notes += left_out(reader.spare, reader.without_use, asked)
    facts = facts_of(raw.facts, framework)
    _name_units(reader, facts)
    return RunLog(
        path=raw.path,
        framework=family(framework),
        kind=raw.kind,
        curve=Curve.of_rows(_rows(reader)),
        readings=reader.readings,
        facts=facts,
        ignored=ignored,
        unread_kl={} if any(one in reader.series for one in _KL) else reader.unread_kl,
        restart=raw.restart,
        notes=tuple(dict.fromkeys(reader.notes)),
    )


def _note_texts(reader: _Reader) -> None:
    """Say of names that mean something that what is under them is, in part or whole, no number."""
    logged = set(reader.raw.names)
    for known in known_names(reader.raw.texts, reader.framework):
        where = reader.raw.texts[known.name]
        if known.name in logged:
            reader.notes.append(
                f"{known.name} is not a number everywhere ({where}): left out there"
            )
            continue
        reader.notes.append(f"{known.name} was left out: it holds no number ({where})")
        if known.is_kl:
            reader.unread_kl[known.name] = f"{known.name} holds no number ({where})"


def _take(reader: _Reader, known: Known, quantity: Quantity) -> None:
    values = _values(reader, known, quantity)
    if not values or (known.zeros_are_missing and _is_all_zero(values)):
        return
    reader.put(_reading(known), values)


def _values(reader: _Reader, known: Known, quantity: Quantity) -> dict[int, float]:
    """The series of one name; a logged number that is none becomes infinity, which the rules look for."""
    values = {step: row[known.name] for step, row in reader.raw.rows if known.name in row}
    lost = [step for step, value in values.items() if math.isnan(value)]
    finite = [step for step, value in values.items() if math.isfinite(value)]
    # Where most are NaN and numbers come after them, NaN stands for "not logged".
    is_gap = len(lost) > len(finite) > 0 and finite[-1] > lost[0]
    if lost and (is_gap or quantity in _NAN_IS_MISSING):
        values = {step: value for step, value in values.items() if not math.isnan(value)}
    elif lost:
        shown = ", ".join(str(step) for step in lost[:3]) + (", ..." if len(lost) > 3 else "")
        plural = "s" if len(lost) > 1 else ""
        reader.notes.append(f"{known.name} is NaN at {len(lost)} step{plural} ({shown})")
    return {step: _transformed(value, known.transform) for step, value in values.items()}


def _transformed(value: float, transform: Transform) -> float:
    if math.isnan(value):
        return math.inf
    if transform is Transform.SQUARE:
        return value * value
    return 1 - value if transform is Transform.COMPLEMENT else value


def _drop_false_gold(reader: _Reader) -> None:
    """A gold that is the training reward itself judges nothing."""
    gold = reader.series.get(Quantity.GOLD)
    if gold is not None and gold == reader.series.get(Quantity.PROXY):
        reader.notes.append(
            f"{reader.readings[Quantity.GOLD].name} was left out: it equals the training reward at every step, so it is no gold"
        )
        del reader.series[Quantity.GOLD], reader.readings[Quantity.GOLD]


def _take_kl(
    reader: _Reader, kl: Sequence[Known], kl_unit: KLUnit | None, mean_tokens: float | None
) -> None:
    """Read the KL to the reference: the best name of each unit, and the missing unit from the other."""
    length = reader.series.get(Quantity.LENGTH, {})
    means: set[str] = set()
    for known in kl:
        values = _values(reader, known, known.quantity or Quantity.KL_TOKEN)
        settled = as_set(known, reader.framework, reader.raw.facts, values.values())
        if known.zeros_are_missing and values and _is_all_zero(values):
            reader.notes.append(
                f"{known.name} is exactly 0 at all of its {len(values)} steps, as {_title(reader)} logs it where "
                "it has no reference to measure against: it was taken as not measured, not as a KL of 0"
            )
        elif settled is None:
            reader.notes.append(
                f"{known.name} was left out: verl's loss_agg_mode is {reader.raw.facts[LOSS_MODE]}, whose KL is "
                "neither per token nor per sequence"
            )
        elif values:
            means |= {known.name} if settled.is_mean_of_means else set()
            _place(reader, _reading(settled), values, kl_unit, _mean(length, mean_tokens))
    found = [quantity for quantity in _KL if quantity in reader.series]
    if kl_unit is not None and len({reader.readings[q].name for q in found}) == 2:
        reader.notes.append("--kl-unit changes nothing: the log has its KL in both units")
    if not found and not reader.unread_kl:
        reader.notes.append(_no_kl(reader))
    source = reader.readings[Quantity.LENGTH].name if length else ""
    for quantity in (*_KL, *_K1.values()):
        reading = reader.readings.get(quantity)
        if reading is not None:
            other = other_unit(reading, reader.series[quantity], length, mean_tokens, source)
            if other is not None:
                reader.put(_hedged(other[0], means), other[1])


def _hedged(other: Reading, means: set[str]) -> Reading:
    """The converted reading, told to be near where the log's own mean is over sequences (``means``)."""
    if other.name not in means:
        return other
    why = (
        f"{other.why}; near, not exact, where lengths vary, since the log's mean is over sequences"
    )
    return replace(other, why=why)


def _reading(known: Known) -> Reading:
    assert known.quantity is not None
    return Reading(
        known.quantity, known.name, known.unit, known.estimator, known.why, known.is_certain
    )


def _place(
    reader: _Reader,
    reading: Reading,
    values: dict[int, float],
    kl_unit: KLUnit | None,
    mean_tokens: float | None,
) -> None:
    """Give the reading its unit and take it where no better one was taken."""
    if kl_unit is not None and reader.framework != "kltune":
        reading, said = told(reading, kl_unit)
        reader.notes += [said] if said else []
    elif reading.unit == UNDECIDED:
        decision = infer(list(values.values()), mean_tokens)
        if decision.unit is None:
            why = (
                f"whether it is in nats/token or nats/sequence can't be told ({decision.why}); say it by "
                "--kl-unit token or --kl-unit sequence"
            )
            reader.notes.append(f"{reading.name} was left out: {why}")
            reader.unread_kl[reading.name] = f"{reading.name} is logged, but {why}"
            return
        quantity = Quantity.KL_TOKEN if decision.unit is KLUnit.TOKEN else Quantity.KL_SEQ
        unit = _UNITS[decision.unit.value]
        reading = replace(reading, quantity=quantity, unit=unit, why=decision.why, is_certain=False)
    peak = max((abs(v) for v in values.values() if math.isfinite(v)), default=0.0)
    if reading.quantity is Quantity.KL_TOKEN and peak > TOKEN_CEILING and reading.estimator != "k3":
        reader.notes.append(
            f"{reading.name} reaches {peak:.3g}, more than a mean over tokens can be (about {TOKEN_CEILING:g} "
            "nats/token): if it is a sum over the completion, say --kl-unit sequence"
        )
    if reading.quantity in reader.series:
        reader.notes.append(
            f"{reading.name} was left out: {reader.readings[reading.quantity].name} is the better source"
        )
        return
    reader.put(reading, values)
    if reading.estimator == "k1":
        reader.put(replace(reading, quantity=_K1[reading.quantity]), dict(values))


def _no_kl(reader: _Reader) -> str:
    return (
        "no KL to the reference was read from the log, so it is not known, which is not the same as 0 "
        f"({_title(reader)} logs none where the coefficient is 0)"
    )


def _name_units(reader: _Reader, facts: Mapping[str, float | str]) -> None:
    """Put the study's own units in the place of ``kl_unit`` and ``beta_unit``."""
    for quantity, reading in list(reader.readings.items()):
        fact = facts.get(reading.unit) if reading.unit in ("kl_unit", "beta_unit") else None
        if isinstance(fact, str):
            reader.readings[quantity] = replace(reading, unit=_UNITS.get(fact, fact))


def _mean(length: Mapping[int, float], mean_tokens: float | None) -> float | None:
    finite = [value for value in length.values() if math.isfinite(value)]
    return fmean(finite) if finite else mean_tokens


def _is_all_zero(values: Mapping[int, float]) -> bool:
    return len(values) > 1 and all(value == 0 for value in values.values())


def _title(reader: _Reader) -> str:
    return TITLES.get(reader.framework, "many a trainer")


def _rows(reader: _Reader) -> list[tuple[int, dict[Quantity, float]]]:
    by_step: dict[int, dict[Quantity, float]] = {}
    for quantity, values in reader.series.items():
        for step, value in values.items():
            by_step.setdefault(step, {})[quantity] = value
    return sorted(by_step.items())

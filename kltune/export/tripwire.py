"""A winner in, one dependency-free Python file out that stops or warns another trainer's run at the study's limits.

The file is templates/tripwire.py.txt with the numbers put in: KL at the gold peak, hard limit, stall,
all in the unit of the metric that the target logs, which is in kltune.export.watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from kltune.export.cautions import doubt_words, missed_words
from kltune.export.key import Exported
from kltune.export.setting import Stop, Winner
from kltune.export.target import Target
from kltune.export.watched import NATS_SEQUENCE, Watched, watched
from kltune.spec.trial import KLUnit

TEMPLATE: Final = "tripwire.py.txt"

PEAK_PATIENCE: Final = 3
"""Logs in a row above the KL of the peak: those of the KL guard's default."""

STALLED_SHARE: Final = 0.1
"""Of the smallest limit, the most that may count as no KL at all."""


def tripwire(winner: Winner, target: Target, exported: Exported) -> Exported:
    """Write the file for the framework of ``exported``, which is the winner as that framework is told it.

    Raises:
        SpecError: a framework, or an aggregation of its loss, whose log no tripwire can read.
    """
    seen = watched(exported, target)
    limits = _Limits(winner, seen, target.mean_tokens)
    lines = [*_facts(seen), *_peak(limits), *_limit(limits), *_stall(limits)]
    text = (files("kltune.export") / "templates" / TEMPLATE).read_text(encoding="utf-8")
    for mark, value in (
        ("@TITLE@", "\n\n".join((_title(winner, exported), *_doubt(winner)))),
        ("@USE@", "\n".join(seen.use)),
        ("@LIMITS@", "\n".join(lines)),
    ):
        text = text.replace(mark, value)
    return Exported(
        framework="tripwire",
        version=f"{exported.framework} {exported.version}",
        keys=(),
        warnings=(
            *doubt_words(winner),
            *missed_words(winner),
            *target.warnings,
            *seen.warnings,
            *_warnings(winner),
        ),
        text=text,
    )


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of the study in the unit of the metric; None: there is none."""

    winner: Winner
    seen: Watched
    mean_tokens: float

    def logged(self, kl: float) -> float:
        """A KL in the study's kl_unit, in the metric's."""
        token, seq = self.winner.both_units(kl, self.mean_tokens)
        return seq if self.seen.unit == NATS_SEQUENCE else token

    @property
    def peak(self) -> float | None:
        stop = self.winner.stop
        if stop is None or not stop.kl_token > 0:
            return None
        in_unit = stop.kl_token if self.winner.kl_unit is KLUnit.TOKEN else stop.kl_seq
        return self.logged(in_unit)

    @property
    def limit(self) -> float | None:
        guard = self.winner.kl_guard
        found = guard.limit if guard is not None else self.winner.kl_limit
        return None if found is None else self.logged(found)

    @property
    def stalled_at_seq(self) -> float:
        """Of the study's guard, in the metric's unit."""
        kl_seq = self.winner.guards.stalled.kl_seq
        return kl_seq if self.seen.unit == NATS_SEQUENCE else kl_seq / self.mean_tokens


def _title(winner: Winner, exported: Exported) -> str:
    source, version = winner.source, f"{exported.framework} {exported.version}"
    text = f"Tripwire for a run of {version}: limits of trial {source.trial}, study {source.study} ({source.base})."
    return _in_docstring(text)


def _doubt(winner: Winner) -> tuple[str, ...]:
    return tuple(_in_docstring(f"Warning: {words}.") for words in doubt_words(winner))


def _in_docstring(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")


def _facts(seen: Watched) -> list[str]:
    return [
        *_comment(f"KL(policy || reference) as {seen.title} logs it: {seen.meaning}."),
        f"KL_NAMES = {_tuple(seen.name)}",
        f"KL_UNIT = {_text(seen.unit)}",
        *_comment(f"What a logged KL is multiplied by to be one. {seen.factor_why}".strip()),
        f"KL_FACTOR = {seen.factor:.6g}",
        *_comment(
            "Whether a KL of exactly 0 means that no reference was there to measure against."
        ),
        f"ZERO_IS_MISSING = {seen.zero_is_missing}",
        *_comment(f"What else must be finite. {seen.finite_why}".strip()),
        *_comment(
            "Whether None in place of one of these is how a trainer logs what is not finite."
        ),
        f"NONE_IS_BROKEN = {seen.none_is_broken}",
        f"LOSS_NAMES = {_tuple(seen.loss)}",
        f"GRADIENT_NAMES = {_tuple(seen.gradient)}",
        "GRADIENT_PATIENCE = 3",
        *_comment(
            "Logs in a row without any KL before it says that it is blind, and the usual cause."
        ),
        "BLIND_AFTER = 5",
        f"WHY_NO_KL = {_text(seen.why_no_kl)}",
    ]


def _peak(limits: _Limits) -> list[str]:
    winner, stop = limits.winner, limits.winner.stop
    if stop is None or limits.peak is None:
        why = "never run" if stop is None else "at step 0, before any KL"
        note = _comment(f"KL where gold was best: none, the setting was {why} in the study.")
        return [*note, "PEAK = None", f"PEAK_PATIENCE = {PEAK_PATIENCE}", 'AT_PEAK = "warn"']
    gold = winner.gold
    worth = ""
    if gold is not None:
        worth = f", gold {gold.value:.4g}{_interval(gold.low, gold.high)} ({gold.basis})"
    is_alone = limits.limit is None
    act = "stop" if is_alone else "warn"
    why = (
        "stop, since the study has no hard limit"
        if is_alone
        else 'warn by default, since a peak found on a small model is a hint for a larger one; "stop" to obey it'
    )
    return [
        *_comment(
            f"KL* = at the study's stop (gold's peak, or the end where it judges by that): step {stop.peak_step} of {stop.steps_run} run, exact KL "
            f"{stop.kl_token:.4g} nats/token = {stop.kl_seq:.4g} nats/sequence at "
            f"{winner.measured.mean_tokens:.4g} tokens per completion{worth}. Steps {stop.first_step} to "
            f"{stop.last_step} can't be told from it{_no_fall(stop)}. KL measured {stop.basis}. "
            f"{_converted(limits)}"
        ),
        f"PEAK = {limits.peak:.4g}",
        f"PEAK_PATIENCE = {PEAK_PATIENCE}  # logs in a row: one step's KL is noisy",
        *_comment(f"What happens there: {why}."),
        f"AT_PEAK = {_text(act)}",
    ]


def _no_fall(stop: Stop) -> str:
    is_open = stop.last_step >= stop.steps_run
    return ", so gold was not seen to fall behind it" if is_open else ""


def _limit(limits: _Limits) -> list[str]:
    winner, guard = limits.winner, limits.winner.kl_guard
    if limits.limit is None:
        return [
            *_comment("Hard limit: none, the study has neither objective.kl_limit nor guards.kl."),
            "LIMIT = None",
            "LIMIT_PATIENCE = 3",
            'AT_LIMIT = "stop"',
        ]
    if guard is None:
        source, patience, act, given = "objective.kl_limit", 3, "stop", winner.kl_limit
    else:
        act = "warn" if guard.action == "warn" else "stop"
        own = winner.guards.kl
        source = "objective.kl_limit" if own is None or own.limit is None else "guards.kl.limit"
        patience, given = guard.patience, guard.limit
    unit = f"nats/{winner.kl_unit.value}"
    return [
        *_comment(
            f"Hard limit: {source} of the study, {given:.4g} {unit}; no checkpoint beyond was wanted. "
            f"{_converted(limits)}"
        ),
        f"LIMIT = {limits.limit:.4g}",
        f"LIMIT_PATIENCE = {patience}  # logs in a row, as in the study",
        f"AT_LIMIT = {_text(act)}  # as in the study",
    ]


def _stall(limits: _Limits) -> list[str]:
    guard = limits.winner.guards.stalled
    tail = [f"STALLED_WINDOW = {guard.window}", f"STALLED_AFTER = {guard.warmup}  # steps"]
    if guard.action == "off":
        return [*_comment("No stall: guards.stalled is off in the study."), "STALLED = None", *tail]
    known = [value for value in (limits.peak, limits.limit) if value is not None]
    top = STALLED_SHARE * min(known) if known else None
    value = limits.stalled_at_seq
    cut = ""
    if top is not None and top < value:
        value, cut = top, f" Lowered to {STALLED_SHARE:.0%} of the smallest limit above."
    return [
        *_comment(
            f"Stalled: mean KL of STALLED_WINDOW logs below this, after STALLED_AFTER steps. "
            f"guards.stalled of the study: {guard.kl_seq:.4g} nats/sequence, where the proxy is flat too; "
            f"here the KL alone is seen, so it only warns.{cut}"
        ),
        f"STALLED = {value:.4g}",
        *tail,
    ]


def _converted(limits: _Limits) -> str:
    """How the number below came about."""
    winner, seen = limits.winner, limits.seen
    own = f"nats/{winner.kl_unit.value}"
    if own == seen.unit:
        return f"Taken over in {own}, the unit of the study's limits."
    factor = "x" if seen.unit == NATS_SEQUENCE else "/"
    return f"Here {own} {factor} {limits.mean_tokens:.4g} tokens per completion of the target."


def _warnings(winner: Winner) -> list[str]:
    warnings: list[str] = []
    if winner.stop is None:
        warnings.append("the setting was never run: no KL at a gold peak is known, only limits")
    if winner.kl_guard is None and winner.kl_limit is None:
        warnings.append(
            "the study has no KL limit (objective.kl_limit, guards.kl): the tripwire stops at KL* instead"
            if winner.stop is not None
            else "the study has no KL limit: the tripwire stops only on what is not finite"
        )
    return warnings


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:.4g}, {high:.4g}]"


def _comment(text: str, width: int = 96) -> list[str]:
    lines, line = [], "#"
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]


def _text(value: str) -> str:
    """A string literal that holds whatever the words hold."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tuple(value: str) -> str:
    return f"({_text(value)},)"

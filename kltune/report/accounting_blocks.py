"""A study in, the section on what it cost out, in words and two bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kltune.report.accounting import CUTS, Accounting, Cut, Limit, Shared, Steps, Time
from kltune.report.canvas import INK, PAPER, drawing
from kltune.report.charts.bars import bar_chart
from kltune.report.document import Block, Facts, Figure, Figures, Paragraph
from kltune.report.reckon import account
from kltune.report.rows import StudyRows
from kltune.trial.outcome import StopReason
from kltune.trial.words import duration, number

Part = tuple[str, float, str]
"""Label, amount, colour."""

_RUN, _GREY = "#0d9488", "#8a939c"
_CUT_COLOUR = {
    **dict.fromkeys(CUTS, "#f472b6"),
    StopReason.PRUNED: "#3b82f6",
    StopReason.KL_LIMIT: "#f59e0b",
    StopReason.GOLD_DROP: "#ca8a04",
    StopReason.WALL_CLOCK: "#a489b4",
    StopReason.DIVERGED: "#dc2626",
}
_NOTE = (
    "A trial-step is one training step of one trial. Spared seconds: steps not run × the trial's own mean step; "
    "evaluations that were spared too are not in them. Useful operations: what the mathematics asks for (2 per weight "
    "and token forward, 2 more backward through frozen weights, a prompt once for its group, attention and adapters "
    "included), without padding and without anything computed twice."
)


def accounting_blocks(study: StudyRows) -> tuple[Block, ...]:
    """What the study cost, what was spared and shared; empty where no trial was started."""
    if not study.trials:
        return ()
    found = account(study)
    bars = [bar for bar in (_steps_bar(found.steps), _time_bar(found.time)) if bar is not None]
    return (
        Facts(tuple(_facts(study, found))),
        *((Figures(tuple(bars)),) if bars else ()),
        Paragraph(_NOTE, "note"),
    )


def _facts(study: StudyRows, found: Accounting) -> Iterator[tuple[str, str]]:
    time = found.time
    yield "Wall time", _wall_words(study, time)
    if time.bookkeeping_frac is not None:
        yield (
            "Bookkeeping",
            f"{_percent(time.bookkeeping_frac)} of the wall time (Optuna, files, and MLflow, whose "
            "thread works beside the trainer)",
        )
    if parts := _time_parts(time):
        yield "Where the time went", _shares(parts)
    yield "Eliminated", eliminated_words(found.steps)
    if found.steps.wasted.rows or found.steps.failed_short:
        yield "Thrown away", _wasted_words(found.steps)
    yield "Shared", shared_words(found.shared, _sessions(study))
    yield "Share of the limit", limit_words(found, is_bf16=study.spec.trainer.precision == "bf16")
    yield "A trial of full length", _full_trial_words(found)
    if study.spec.budget.price is not None:
        yield "Price", price_words(study, found)


def _wall_words(study: StudyRows, time: Time) -> str:
    if time.wall_s is None:
        return "not on record: no search has come to an end yet"
    sessions = _sessions(study)
    text = duration(time.wall_s) + (f" in {sessions} sessions" if sessions > 1 else "")
    if time.is_whole or (time.steps + time.evaluations).untimed:
        return text
    return (
        f"{text}, but the steps on record took {duration(time.busy_s)}: a session that crashed, or still "
        "runs, is not in it"
    )


def eliminated_words(steps: Steps) -> str:
    """What pruning and guards spared, by reason."""
    if not steps.planned:
        return "nothing yet: no trial has ended"
    planned = (
        f"{steps.planned:,} trial-steps planned for {_count(steps.trials, 'trial')} that ended"
    )
    if not steps.cuts:
        return f"nothing of {planned}: no trial was pruned or stopped by a guard"
    parts = "; ".join(_cut_words(cut) for cut in steps.cuts)
    worth = "" if steps.spared_s is None else f", {duration(steps.spared_s)} of one worker"
    return (
        f"{steps.spared:,} of {planned} ({_percent(steps.spared / steps.planned)}{worth}): {parts}"
    )


def _cut_words(cut: Cut) -> str:
    worth = "" if cut.seconds is None else f", {duration(cut.seconds)}"
    return f"{CUTS[cut.reason]} {cut.steps:,} ({_count(cut.trials, 'trial')}{worth})"


def _wasted_words(steps: Steps) -> str:
    text = (
        f"{steps.wasted.rows:,} trial-steps, {duration(steps.wasted.seconds)} of one worker: those that a later "
        "attempt ran again, and all steps of trials that failed for good"
    )
    return (
        f"{text} ({steps.failed_short:,} more were planned for these)"
        if steps.failed_short
        else text
    )


def shared_words(shared: Shared, sessions: int) -> str:
    """What trials that ran together gained over one alone."""
    ran = _placement_words(shared, sessions)
    if shared.alone_step_s is None:
        why = (
            "the record does not say how trials were placed"
            if not ran
            else "no calibration was run"
        )
        return f"not measured: {why}{ran and f' ({ran})'}"
    alone = f"one alone with all threads {_step_s(shared.alone_step_s)} (calibrated)"
    if shared.factor is None:
        return f"not known: the time of training is not on record; {alone} ({ran})"
    if shared.slots == 1:
        gain = "nothing: one trial ran at a time"
    elif shared.factor >= 1:
        gain = f"{number(shared.factor)} × the speed of one trial alone"
    else:
        gain = f"nothing: {number(shared.factor)} × the speed of one trial alone"
    text = f"{gain}. A trial-step took {_step_s(shared.realised_step_s)} of wall time, {alone}"
    if shared.placed_step_s is not None and shared.slots != 1:
        text += f"; {_step_s(shared.placed_step_s)} as the calibration measured this placement"
    if ran:
        text += f". {ran[0].upper()}{ran[1:]}"
    if shared.bound is not None and shared.bound > 1:
        text += f": {shared.bound} × at most"
    return f"{text}. That a prompt is read once for the completions of its group is in both"


def _placement_words(shared: Shared, sessions: int) -> str:
    if shared.workers is None or shared.slots is None or shared.threads is None:
        return ""
    slots = "" if shared.slots == shared.workers else f", {shared.slots} trials at once"
    latest = f" in the latest of {sessions} sessions" if sessions > 1 else ""
    workers, threads = _count(shared.workers, "worker"), _count(shared.threads, "thread")
    return f"{workers} of {threads}{slots}{latest}"


def limit_words(found: Accounting, *, is_bf16: bool) -> str:
    """How much of what the machine can do was used."""
    limit = found.limit
    if limit.overall is None or limit.peak_gflops is None:
        return f"not known: {_unknown_limit(limit, found.time)}"
    text = (
        f"{_percent(limit.overall)} of the measured fp32 matmul peak of {number(limit.peak_gflops)} GFLOP/s over "
        "the whole search"
    )
    if limit.training is not None:
        text += f"; {_percent(limit.training)} in training steps alone"
    return f"{text} (arithmetic is bf16, whose own peak is another)" if is_bf16 else text


def _unknown_limit(limit: Limit, time: Time) -> str:
    rows = (time.steps + time.evaluations).rows
    if limit.uncounted:
        return f"{limit.uncounted:,} of {rows:,} steps and evaluations were recorded without their operations"
    if not rows:
        return "nothing was trained"
    if limit.peak_gflops is None:
        return "the machine's peak was not measured"
    return "wall time is not on record"


def _full_trial_words(found: Accounting) -> str:
    full = found.full_trial
    what = f"{_count(full.steps, 'step')} and {_count(full.evaluations, 'evaluation')}"
    if full.seconds is None:
        return f"{what}: not known, since no step and evaluation has its time on record"
    text = f"{what}: {duration(full.seconds)} of one worker"
    if full.hundred_s is None:
        return text
    return f"{text}. 100 of them, none stopped early: {duration(full.hundred_s)} at the pace of this study"


def price_words(study: StudyRows, found: Accounting) -> str:
    """Energy and money with how they were reckoned, by the prices in the spec."""
    price, bill, wall_s = study.spec.budget.price, found.bill, found.time.wall_s
    if price is None or bill is None:
        return "no price was given"
    if wall_s is None or (bill.energy_kwh is None and bill.money is None):
        return "not known: wall time is not on record as a whole"
    hours = f"{number(wall_s / 3600)} h"
    sums: list[str] = []
    if price.per_hour is not None:
        sums.append(f"{hours} × {number(price.per_hour)} {price.currency}")
    energy = ""
    if bill.energy_kwh is not None:
        energy = f"{number(bill.energy_kwh)} kWh ({hours} × {number(price.watts)} W)"
        if price.per_kwh is not None:
            sums.append(f"{number(bill.energy_kwh)} kWh × {number(price.per_kwh)} {price.currency}")
    if bill.money is None:
        return f"{energy}; no price of money was given"
    money = f"{number(bill.money)} {price.currency} ({' + '.join(sums)})"
    return f"{money}; energy {energy}" if energy else money


def _steps_bar(steps: Steps) -> Figure | None:
    """Planned trial-steps by what became of them; none where all were run."""
    parts: list[Part] = [("run", steps.run, _RUN)]
    parts += [(CUTS[c.reason], c.steps, _CUT_COLOUR[c.reason]) for c in steps.cuts if c.steps]
    if steps.failed_short:
        parts.append(("not run: the trial failed", steps.failed_short, _GREY))
    if len(parts) == 1:
        return None
    labels = [f"{label} {amount:,.0f}" for label, amount, _ in parts]
    text = "Trial-steps planned for the trials that ended, and what became of them."
    return _bar(text, f"{steps.planned:,} trial-steps planned", parts, labels)


def _time_bar(time: Time) -> Figure | None:
    parts = _time_parts(time)
    if not parts:
        return None
    total = sum(amount for _, amount, _ in parts)
    labels = [f"{label} {_percent(amount / total)}" for label, amount, _ in parts]
    is_wall = time.is_whole and time.worker_s == time.wall_s
    title = f"{duration(total)} of {'wall time' if is_wall else 'the workers'}"
    whose = "the search" if time.is_whole else "the steps and evaluations on record"
    return _bar(f"Where the time of {whose} went.", title, parts, labels)


def _time_parts(time: Time) -> list[Part]:
    """Worker seconds by what they were spent on; empty where that is not on record."""
    phases = time.phases
    if not phases:
        return []
    parts: list[Part] = [
        ("sampling", phases["rollout"], "#0d9488"),
        ("scoring", phases["score"], "#8b5cf6"),
    ]
    if phases["reference"]:
        parts.append(("reference", phases["reference"], "#16a34a"))
        parts.append(("log-probs", phases["logprobs"], "#3b82f6"))
        parts.append(("updates", phases["update"], "#dc2626"))
    else:  # older records keep the three under two names that do not part them
        learning = phases["logprobs"] + phases["update"]
        parts.append(("log-probs and updates", learning, "#3b82f6"))
    parts.append(("evaluations", time.evaluations.seconds, "#f59e0b"))
    known = sum(amount for _, amount, _ in parts)
    if time.is_whole and time.wall_s and time.worker_s and time.trainer_s is not None:
        trainer = time.worker_s * time.trainer_s / time.wall_s
        parts.append(("saving, starting, waiting", max(0.0, trainer - known), "#a489b4"))
        parts.append(("outside the trainer", max(0.0, time.worker_s - max(trainer, known)), _GREY))
    return [part for part in parts if part[1] > 0]


def _bar(text: str, title: str, parts: Sequence[Part], labels: Sequence[str]) -> Figure:
    with drawing(3.9, 0.66 + 0.19 * len(parts)) as (canvas, out):
        axes = canvas.subplots()
        left = 0.0
        for (_, amount, colour), label in zip(parts, labels, strict=True):
            axes.barh(
                [0], [amount], left=[left], color=colour, label=label, edgecolor=PAPER, lw=0.7
            )
            left += amount
        axes.set_xlim(0, left)
        axes.set_axis_off()
        axes.set_title(title, fontsize=9, loc="left", color=INK)
        axes.legend(
            loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=0.2, borderpad=0, handlelength=1
        )
    return Figure(out[0], text, chart=bar_chart(title, parts, labels))


def _shares(parts: Sequence[Part]) -> str:
    total = sum(amount for _, amount, _ in parts)
    return "; ".join(f"{label} {_percent(amount / total)}" for label, amount, _ in parts)


def _sessions(study: StudyRows) -> int:
    value = study.timing.get("sessions")
    return value if isinstance(value, int) else 1


def _step_s(seconds: float | None) -> str:
    return f"{number(seconds)} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _count(amount: int, what: str) -> str:
    return f"{amount} {what}{'s' * (amount != 1)}"

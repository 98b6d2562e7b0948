"""A plan in, what `--dry-run` shows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kltune.spec.algorithm import Credit
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.words import duration, number, origin_words, setting_long


@dataclass(frozen=True, slots=True)
class Plan:
    """What `--dry-run` shows: nothing of it has happened."""

    name: str
    trials_by_origin: Mapping[str, int]
    """In the order in which they run; keys as in Admitted.origin."""
    ended_before: int
    first_settings: Sequence[tuple[str, TrialSpec]]
    """Origin and setting of the first trials."""
    slots: int
    steps: int
    seconds: float | None
    """Estimated; none where nothing was measured."""
    memory_gib: float | None
    """Estimated."""
    reward_calls: int
    """Completions that the proxy will score, at most."""
    gold_calls: int
    """Completions that gold will score, at most."""
    kl_unit: KLUnit
    beta_unit: BetaUnit
    notes: Sequence[str] = ()
    """Things to know before the start, e.g. an inert horizon."""
    credit: Credit = "sequence"
    """Which tokens pay for a KL in the reward: the unit of beta depends on it."""
    judge_calls: int = 0
    """Requests to language models as judges, at most; those for the reference come on top."""
    placement: str | None = None
    """Processes and threads, like ``2 workers of 1 thread``; none where nobody chose them."""
    disk_bytes: int | None = None
    """Of the study on disk, at most; none where nobody estimated it."""
    disk: str | None = None
    """The same in words, with what a trial takes."""


def dry_run_table(plan: Plan) -> Group:
    """The plan as a person reads it."""
    facts = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold", ratio=1)
    total = sum(plan.trials_by_origin.values())
    parts = ", ".join(
        origin_words(origin) + (f" × {count}" if count > 1 else "")
        for origin, count in plan.trials_by_origin.items()
    )
    facts.add_row(
        "Trials", Text(f"{total} to run of up to {plan.steps} steps, {plan.slots} at once: {parts}")
    )
    if plan.placement is not None:
        facts.add_row("Workers", Text(plan.placement))
    if plan.ended_before:
        facts.add_row("Done before", Text(f"{plan.ended_before} trials, which count"))
    time = (
        "not measured on this machine"
        if plan.seconds is None
        else f"about {duration(plan.seconds)}"
    )
    facts.add_row("Time", Text(f"{time}; less where guards and pruning end trials early"))
    memory = "not estimated" if plan.memory_gib is None else f"about {number(plan.memory_gib)} GiB"
    facts.add_row("Memory", Text(memory))
    if plan.disk is not None:
        facts.add_row("Disk", Text(plan.disk))
    facts.add_row("Proxy calls", Text(f"at most {plan.reward_calls:,} completions"))
    facts.add_row("Gold calls", Text(f"at most {plan.gold_calls:,} completions"))
    if plan.judge_calls:
        facts.add_row(
            "Judge calls", Text(f"at most {plan.judge_calls:,} requests, equal ones once")
        )
    for note in plan.notes:
        facts.add_row("Note", Text(note, style="yellow"))
    settings = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    settings.add_column("from", overflow="fold", max_width=24)
    settings.add_column("first settings", overflow="fold", ratio=1)
    for origin, setting in plan.first_settings:
        settings.add_row(
            Text(origin_words(origin)),
            Text(setting_long(setting, plan.beta_unit, plan.kl_unit, plan.credit)),
        )
    head = Text(f"Plan of {plan.name}; nothing was started.", style="bold")
    return Group(head, facts, Text(""), settings)

"""A plan in, what a person reads in the terminal out: every number with its unit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.plan.designs import Need, Purpose
from kltune.plan.result import PlanResult
from kltune.statistics.power import ALPHA
from kltune.trial.words import MISSING, duration, number


def plan_table(plan: PlanResult) -> Group:
    """The whole plan as a person reads it."""
    parts: list[RenderableType] = [
        _facts(plan),
        Text("\nWhat one run of each setting sees", style="bold"),
        _seen(plan),
    ]
    for purpose in plan.purposes:
        parts += [
            Text(
                f"\nTo see a difference between two of {purpose.words}{_how(purpose)}", style="bold"
            ),
            _needs(plan, purpose),
        ]
    parts.append(Text(_reading(plan), style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in plan.unknowns]
    return Group(*parts)


def _facts(plan: PlanResult) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    table.add_row("Plan for", Text(plan.name))
    table.add_row("Noise from", Text(plan.source))
    for scenario in plan.scenarios:
        table.add_row(f"  {scenario.name}", Text(scenario.words))
    table.add_row("Time", Text(plan.price.words))
    return table


def _seen(plan: PlanResult) -> Table:
    table = _table()
    table.add_column(f"{plan.prompts} prompts × {plan.samples} samples, 1 seed")
    for scenario in plan.scenarios:
        table.add_column(f"{scenario.name} noise", justify="right")
    for comparisons in sorted({one.comparisons for one in plan.seen}):
        words = "two settings named beforehand"
        if comparisons > 1:
            words = f"any of {comparisons} settings against the best"
        by_name = {o.scenario: o.difference for o in plan.seen if o.comparisons == comparisons}
        cells = [f"{number(by_name[s.name], 2)} gold or more" for s in plan.scenarios]
        table.add_row(words, *cells)
    return table


def _needs(plan: PlanResult, purpose: Purpose) -> Table:
    table = _table()
    table.add_column("gold", justify="right")
    table.add_column("noise")
    for name in ("seeds", "prompts", "samples", "trials"):
        table.add_column(name, justify="right")
    table.add_column("time" if plan.price.is_timed else "completions", justify="right")
    before: float | None = None
    for need in plan.needs:
        if need.purpose == purpose.name:
            shown = "" if need.difference == before else number(need.difference, 2)
            table.add_row(shown, need.scenario, *_cells(plan, purpose, need))
            before = need.difference
    return table


def _how(purpose: Purpose) -> str:
    return " (kltune confirm)" if purpose.name == "confirm" else ", each on every seed"


def _table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), header_style="dim")


def _cells(plan: PlanResult, purpose: Purpose, need: Need) -> tuple[str, ...]:
    design, cost = need.design, need.cost
    if design is None or cost is None:
        return (*(MISSING,) * 4, "out of reach")
    more = "*" if design.prompts > purpose.available else ""
    return (
        str(design.seeds),
        f"{design.prompts}{more}",
        str(design.samples),
        str(design.seeds * design.settings),
        duration(cost) if plan.price.is_timed else f"{cost:,.0f}",
    )


def _reading(plan: PlanResult) -> str:
    text = (
        f"Seen: told from 0 with {plan.power:.0%} chance, at {ALPHA:.0%} for any false one among all that are "
        "compared. The cheapest design is shown. Samples are per prompt; trials = settings × seeds, each with "
        f"{plan.price.evaluations} evaluations."
    )
    if any(
        need.purpose == purpose.name
        and need.design is not None
        and need.design.prompts > purpose.available
        for purpose in plan.purposes
        for need in plan.needs
    ):
        had = " and ".join(f"{p.available} for {p.name}" for p in plan.purposes)
        text += f" *: more prompts than there are ({had})."
    return text

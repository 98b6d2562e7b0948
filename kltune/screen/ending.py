"""A finished study in, what a person reads at the end out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kltune.trial.words import origin_words

_SHOWN = (
    "In your framework",
    "Controller",
    "Stop",
    "Gold",
    "Other golds",
    "How sure",
    "Tied",
    "What to change",
)


def final_summary(
    summary: Mapping[str, Any],
    files: Sequence[Path],
    *,
    next_command: str,
    bookkeeping_frac: float | None = None,
) -> Group:
    """The recommendation with its reasons, the files written and the next command.

    ``summary`` is what kltune.report.summary gives; paths below the current folder are shown
    relative to it.
    """
    answer = summary["recommendation"]
    is_clear = summary["best"] is not None and not summary["start_words"]
    style = "bold green" if is_clear else "bold yellow"
    facts = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold", ratio=1)
    for label, text in answer["facts"]:
        if label in _SHOWN:
            facts.add_row(Text(label), Text(text))
    for index, baseline in enumerate(summary["baselines"]):
        facts.add_row(Text("" if index else "Against"), Text(_baseline_words(baseline)))
    if said := _guard_words(summary["guards"]["fired"]):
        facts.add_row(Text("Guards"), Text(said))
    for index, path in enumerate(files):
        facts.add_row(Text("" if index else "Files"), Text(str(near(path))))
    if bookkeeping_frac is not None:
        share = f"{100 * bookkeeping_frac:.1f} % of the wall time (Optuna, MLflow and files)"
        facts.add_row(Text("Bookkeeping"), Text(share))
    facts.add_row(Text("Next"), Text(next_command, style="bold"))
    num, budget = summary["num_trials"], summary["budget_trials"]
    trials = f"{num} of {budget} trials" if num <= budget else f"{num} trials (budget {budget})"
    return Group(
        Text(""),
        Text(answer["headline"], style=style, overflow="fold"),
        Text(trials, style="dim"),
        facts,
    )


def _guard_words(fired: Sequence[Mapping[str, Any]]) -> str:
    """How often each guard spoke; empty where none did."""
    parts: list[str] = []
    for words, key in (("trials ended", "stopped"), ("trials warned of", "warned")):
        heard = [f"{one['guard']} {len(one[key])}" for one in fired if one[key]]
        if heard:
            parts.append(f"{words}: {', '.join(heard)}")
    return "; ".join(parts)


def near(path: Path) -> Path:
    """The path as one would type it: relative where it is below the current folder."""
    here = Path.cwd()
    full = path.absolute()
    return full.relative_to(here) if full.is_relative_to(here) else full


def _baseline_words(baseline: Mapping[str, Any]) -> str:
    name = origin_words(baseline["origin"])
    against = baseline["best_minus_this"]
    if against is None:
        return f"{name}: nothing to compare ({baseline['state']})"
    verdict = "" if against["told_apart"] else ", can't be told apart"
    interval = against["no_interval"]
    if interval is None:
        interval = f"95 % interval {against['low']:+.3f} to {against['high']:+.3f}"
    return f"{name}: {against['gold']:+.3f} gold ({interval}{verdict})"

"""Where a study stands in, what a person reads in the terminal out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.launch.status_confirmed import find_confirmed
from kltune.launch.status_facts import Standing, TrialStand
from kltune.launch.status_next import (
    member_rows,
    next_command,
    recommended_trial,
    report_words,
    start_words,
    state_word,
    state_words,
)
from kltune.launch.status_pace import Pace
from kltune.report.confirm_blocks import verdict_short
from kltune.report.text import visible
from kltune.screen.ending import near
from kltune.trial.outcome import TrialState
from kltune.trial.words import both_units, duration, number, origin_words, score

SHOWN: Final = 5
"""Warnings that are listed."""


def status_table(standing: Standing, pace: Pace | None) -> Group:
    """The whole status."""
    spec, state = standing.spec, state_word(standing)
    name = standing.path.name if spec is None else spec.name
    style = {"running": "green", "finished": "green"}.get(state, "yellow")
    head = Text(f"{visible(name)}: {state_words(standing)}", style=f"bold {style}")
    rows = [("Members", text) for text in member_rows(standing)]
    rows += [("Trials", _trials(standing)), *_open(standing), *_pace(standing, pace)]
    rows += [*_best(standing), *_confirmed(standing), *_warnings(standing)]
    rows += [("Unreadable", text) for text in standing.broken]
    rows += [
        ("Disk", f"{size_words(standing.disk_bytes)} in {near(standing.path)}"),
        ("Report", report_words(standing)),
        ("Next", next_command(standing)),
    ]
    return Group(head, _facts(rows))


def not_started_table(study_path: Path, steps: Sequence[str]) -> Group:
    """Of a spec whose study does not exist."""
    head = Text(f"not started: there is no {near(study_path)} yet", style="bold yellow")
    return Group(head, _facts([("Next" if step == steps[0] else "then", step) for step in steps]))


def size_words(count: int) -> str:
    """Bytes for people, in decimal units."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def _facts(rows: Sequence[tuple[str, str]]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    before = ""
    for label, text in rows:
        table.add_row(Text("" if label == before else label), Text(visible(text)))
        before = label
    return table


def _trials(standing: Standing) -> str:
    counts = standing.counts
    ended = sum(n for state, n in counts.items() if state is not TrialState.RUNNING)
    left = {
        TrialState.RUNNING: "running" if standing.is_running else "without an end",
        TrialState.INTERRUPTED: "interrupted (they go on)",
    }
    parts = [f"{counts[s]} {left.get(s, s.value)}" for s in TrialState if counts[s]]
    if standing.spec is None:
        return "none yet: the sweep is getting ready"
    return f"{ended} of {standing.spec.budget.trials} ended" + (
        f": {', '.join(parts)}" if parts else ""
    )


def _open(standing: Standing) -> list[tuple[str, str]]:
    label = "Running" if standing.is_running else "Without an end"
    return [(label, _open_words(trial, standing)) for trial in standing.open]


def _open_words(trial: TrialStand, standing: Standing) -> str:
    steps = "" if standing.spec is None else f" of {standing.spec.trainer.steps}"
    kl = both_units(trial.row.get("kl/exact_token"), trial.row.get("kl/exact_seq"))
    text = f"trial {trial.number}: step {trial.step}{steps}"
    text += f", KL {kl}" if trial.row else ", no step yet"
    gold = trial.evaluation.get("eval/gold")
    if gold is not None:
        text += f", gold {score(gold)} at step {trial.evaluation['step']}"
    return f"{text}; {trial.setting}"


def _pace(standing: Standing, pace: Pace | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if pace is not None and pace.steps_per_s is not None:
        text = f"{number(pace.steps_per_s)} trial-steps per second"
        if pace.left_s is not None:
            text += f"; about {duration(pace.left_s)} left"
        if pace.wall_left_s is not None and pace.wall_left_s < (pace.left_s or 0):
            text += f", but budget.wall ends it in {duration(pace.wall_left_s)}"
        rows.append(("Pace", text))
    if standing.last is not None:
        text = f"{ago(standing.now - standing.last)} ago"
        if pace is not None and pace.is_quiet:
            text += ": far longer than a row takes, so it may hang"
        rows.append(("Latest row", text))
    elif pace is not None and pace.is_quiet:
        rows.append(("Latest row", f"none for {ago(pace.quiet_s or 0)}: it may hang"))
    return rows


def ago(seconds: float) -> str:
    """An age: ``12 s``, ``3 min 05 s``, ``2 h 10 min`` or ``9 days``."""
    days = seconds / 86_400
    return f"{days:.0f} days" if days >= 2 else duration(max(0.0, seconds))


def _best(standing: Standing) -> list[tuple[str, str]]:
    """What the report recommends where the study is finished; then the highest value, whatever noise is in it."""
    best, chosen = standing.best, recommended_trial(standing)
    label = "Highest value" if standing.is_finished else "Best so far"
    if best is None:
        has_any = any(trial.state is TrialState.COMPLETE for trial in standing.trials)
        return [(label, "none: no trial respects the limits so far" if has_any else "none yet")]
    if chosen is None:
        return [(label, _trial_words(standing, best))]
    rows = [("Recommended", _trial_words(standing, chosen))]
    if words := start_words(standing):
        rows.append(("Before training", words))
    if best.number == chosen.number:
        return [*rows, (label, f"trial {best.number} too")]
    return [*rows, (label, f"{_trial_words(standing, best)}; not recommended: see the report")]


def _confirmed(standing: Standing) -> list[tuple[str, str]]:
    """What fresh seeds and test prompts said; of a setting that is not recommended any more, that alone."""
    found = find_confirmed(standing.path)
    if found is None:
        return []
    chosen = recommended_trial(standing)
    if chosen is not None and not found.is_of(chosen.number):
        return [("Confirmed", f"not: the last confirmation was of {found.result.arms[0].name}")]
    return [("Confirmed", found.gold_words()), ("Confirmed", verdict_short(found.result))]


def _trial_words(standing: Standing, best: TrialStand) -> str:
    row = best.evaluation
    gold = score(row.get("eval/gold"), row.get("eval/gold_se"))
    kl = both_units(row.get("eval/kl_token"), row.get("eval/kl_seq"))
    at = f"gold {gold} at step {row['step']}, KL {kl}; " if row else ""
    metric = "" if standing.spec is None else f" ({standing.spec.objective.metric})"
    return (
        f"trial {best.number}, value {score(best.value)}{metric}: {at}{best.setting}; "
        f"{origin_words(best.origin)}"
    )


def _warnings(standing: Standing) -> list[tuple[str, str]]:
    found = [(t.number, warned) for t in standing.trials for warned in t.warnings]
    rows = [("Warnings", f"trial {n}, {w.guard}: {w.detail}") for n, w in found[-SHOWN:]]
    if len(found) > SHOWN:
        rows.append(("Warnings", f"and {len(found) - SHOWN} before these: see the report"))
    return rows

"""Where a study stands in, its state in one word and the command that comes next out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final, cast

from kltune.confirm.result import FILE, FOLDER
from kltune.errors import StudyError
from kltune.launch.status_confirmed import SLACK_S, confirmed_after, find_confirmed
from kltune.launch.status_facts import Standing, TrialStand
from kltune.launch.status_words import dead_words, members_words
from kltune.metrics.jsonl import read_json
from kltune.screen.ending import near
from kltune.trial.words import duration

UNAWARE: Final = "older than the confirmation, so it does not know of it"
"""Of a report."""
RECENT_S: Final = 60.0
"""A row younger than this, and nobody here who holds the study: someone elsewhere writes."""


def state_word(standing: Standing) -> str:
    """``running``, ``finished``, ``stopped``, ``killed`` or ``not started``; ``stopped?``: or it runs elsewhere."""
    if standing.is_running:
        return "running"
    if standing.open and standing.holder.is_gone:
        return "killed"
    if standing.last is not None and standing.now - standing.last < RECENT_S:
        if standing.open and standing.holder.state == "unknown":
            return "running"
        if standing.open:
            return "stopped?"
    if standing.is_finished:
        return "finished"
    return "stopped" if standing.trials else "not started"


def state_words(standing: Standing) -> str:
    """The state with what is known of the process."""
    word, holder = state_word(standing), standing.holder
    if word == "killed":
        return f"killed (process {holder.pid} is gone)"
    if word == "stopped?":
        return "stopped this minute, or running on another machine"
    if standing.is_running:
        crew = members_words([m for m in holder.crew if m.is_alive])
        if not holder.workers:
            return f"{word} ({holder.command or 'kltune'}, process {holder.pid})"
        return f"{word} ({crew}; process {holder.pid})"
    return word


def member_rows(standing: Standing) -> list[str]:
    """What is to be known of the members of a search: who died, and of whom nothing can be told."""
    rows: list[str] = []
    if standing.holder.dead:
        rows.append(f"died: {dead_words(standing.holder.dead)}; what ran there goes on in another")
    for member in standing.holder.distant:
        age = max(0.0, standing.now - member.seen)
        rows.append(f"{member.role} {member.id} on another machine, last seen {duration(age)} ago")
    return rows


def crew_words(standing: Standing) -> str:
    """``running (sweep + 3 workers)`` where there are workers, else the state alone."""
    word = state_word(standing)
    if word == "running" and standing.holder.workers:
        word += f" ({members_words([m for m in standing.holder.crew if m.is_alive])})"
    if standing.holder.dead:
        word += f", {len(standing.holder.dead)} died"
    return word


def next_command(standing: Standing) -> str:
    """What a person would type now."""
    study = shlex.quote(str(near(standing.path)))
    if state_word(standing) == "running":
        return f"kltune ui {study}"
    if not standing.is_finished:
        return _resuming(standing)
    if "report.html" not in standing.files or standing.best is None:
        return f"kltune report {study}"
    if _is_of_another(standing) or not (standing.path / FOLDER / FILE).is_file():
        return f"kltune confirm {study}"
    if report_age(standing) == UNAWARE:
        return f"kltune report {study}"
    if "validate.json" not in standing.files:
        return f"kltune validate {study}"
    return f"kltune export {study} --to trl"


def _is_of_another(standing: Standing) -> bool:
    """Whether the confirmation is of a setting that is not recommended any more."""
    chosen, confirmed = recommended_trial(standing), find_confirmed(standing.path)
    if chosen is None or confirmed is None:
        return False
    return not confirmed.is_of(chosen.number)


def _resuming(standing: Standing) -> str:
    """The last sweep's own command goes on; without one on record, the study's spec does."""
    words = standing.command
    if words[:2] == ("kltune", "sweep"):
        return shlex.join(word for word in words if word != "--fresh")
    spec = near(standing.path / "spec.yaml")
    return shlex.join(("kltune", "sweep", str(spec), "--study", str(near(standing.path))))


def report_words(standing: Standing) -> str:
    """Where the report is, and whether it knows of the latest rows and of the confirmation."""
    report: Path = standing.path / "report.html"
    age = report_age(standing)
    if age is None:
        return "none yet"
    text = f"{near(report)}{f' ({age})' if age else ''}"
    recommended = _recommended(standing)
    if recommended is None:
        return text
    return f"{text}: recommends trial {recommended}, noise and plateaus weighed in"


def report_age(standing: Standing) -> str | None:
    """What the report is older than, so does not know of; empty where it is not, None without one."""
    try:
        made = (standing.path / "report.html").stat().st_mtime
    except OSError:
        return None
    if standing.last is not None and made < standing.last - SLACK_S:
        return "older than the latest rows"
    if confirmed_after(standing.path, made):
        return UNAWARE
    return ""


def recommended_trial(standing: Standing) -> TrialStand | None:
    """The trial that the report of a finished study recommends; none where the report is older than that."""
    try:
        made = (standing.path / "report.json").stat().st_mtime
    except OSError:
        return None
    if not standing.is_finished or (standing.last is not None and made < standing.last - SLACK_S):
        return None
    number = _recommended(standing)
    return next((trial for trial in standing.trials if trial.number == number), None)


def start_words(standing: Standing) -> str:
    """What the report says of the recommended trial against the untrained model; empty where it is above."""
    if recommended_trial(standing) is None:
        return ""
    words = _report(standing).get("start_words")
    return words if isinstance(words, str) else ""


def _report(standing: Standing) -> dict[str, Any]:
    try:
        return read_json(standing.path / "report.json")
    except (OSError, StudyError):
        return {}


def _recommended(standing: Standing) -> int | None:
    best = _report(standing).get("best")
    found = cast("dict[str, object]", best).get("number") if isinstance(best, dict) else None
    return found if isinstance(found, int) else None

"""``kltune ls``: folders in, one line per study in them out; what can't be read is listed with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kltune.errors import ExitCode, KltuneError, SpecError
from kltune.launch.saying import say
from kltune.launch.status_confirmed import Confirmed, find_confirmed
from kltune.launch.status_facts import Standing, TrialStand, read_standing, size_of
from kltune.launch.status_next import crew_words, recommended_trial, state_word
from kltune.launch.status_table import size_words
from kltune.launch.status_words import members_json
from kltune.metrics.jsonl import encode
from kltune.report.text import visible
from kltune.screen.ending import near
from kltune.spec.trial import KLUnit
from kltune.trial.words import KL_UNIT, MISSING, number, score

LEGEND: Final = (
    "trials: complete or pruned / budget; best: value of the recommended trial (while none is: the highest), in "
    "gold's unit; *: its gold and KL on fresh seeds and test prompts, by kltune confirm; KL there: nats; row: age of the latest one; stopped?: this minute, or it runs elsewhere"
)
DEPTH: Final = 2
"""Levels below a folder in which studies are looked for."""
_SIGNS: Final = ("resolved.json", "study.db", "storage.json", "trials")
"""A folder with one of these is a study, or was one."""


@dataclass(frozen=True, slots=True)
class LsRequest:
    """The arguments of ``kltune ls``."""

    folders: tuple[Path, ...] = ()
    """None: `studies/`."""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """One study."""

    path: Path
    standing: Standing | None
    problem: str = ""
    """Why it can't be read."""


def run_ls(request: LsRequest) -> ExitCode:
    """List the studies.

    Raises:
        SpecError: a folder that was named is not there.
    """
    folders = request.folders or (Path("studies"),)
    absent = [str(f) for f in request.folders if not f.is_dir()]
    if absent:
        raise SpecError(f"FOLDER: no such folder: {', '.join(absent)}")
    listed = [_listed(path) for path in dict.fromkeys(p for f in folders for p in find_studies(f))]
    if request.as_json:
        sys.stdout.write(encode({"studies": [_as_json(item) for item in listed]}) + "\n")
    elif listed:
        console = Console(file=sys.stdout)
        console.print(ls_table(listed))
        console.print(Text(LEGEND, style="dim"))
    if not listed:
        places = ", ".join(str(folder) for folder in folders)
        say(f"no study in {places} (looked {DEPTH} levels deep); `kltune sweep SPEC` makes one")
    return ExitCode.DONE


def find_studies(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Study folders at or below ``folder``, by name; links are not followed, and nothing within a study."""
    if any((folder / name).exists() for name in _SIGNS):
        yield folder
        return
    if depth == 0:
        return
    try:
        with os.scandir(folder) as found:
            inner = sorted(e.name for e in found if e.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in inner:
        if not name.startswith("."):
            yield from find_studies(folder / name, depth - 1)


def ls_table(listed: list[Listed]) -> Table:
    """One line a study."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("study", overflow="fold", min_width=12)
    table.add_column("state", overflow="fold", min_width=11)
    for name in ("trials", "best", "KL there", "row", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in listed:
        table.add_row(*(Text(visible(text)) for text in _cells(item)))
    return table


def _listed(path: Path) -> Listed:
    try:
        return Listed(path, read_standing(path))
    except KltuneError as error:
        return Listed(path, None, str(error).splitlines()[0])
    except OSError as error:
        return Listed(path, None, f"can't be read: {error.strerror}")


def _cells(item: Listed) -> tuple[str, ...]:
    name, standing = str(near(item.path)), item.standing
    if standing is None:
        size = size_words(size_of(item.path))
        return name, f"broken: {item.problem}", MISSING, MISSING, MISSING, MISSING, size
    spec = standing.spec
    trials = "" if spec is None else f"{standing.num_counted}/{spec.budget.trials}"
    age = MISSING if standing.last is None else age_short(standing.now - standing.last)
    state = crew_words(standing)
    if standing.broken:
        state += f", {len(standing.broken)} unread"
    value, kl = _best(standing)
    return name, state, trials, value, kl, age, size_words(standing.disk_bytes)


def _best(standing: Standing) -> tuple[str, str]:
    chosen, spec = recommended_trial(standing), standing.spec
    best = chosen or standing.best
    if best is None or spec is None:
        return MISSING, MISSING
    is_token = spec.kl_unit is KLUnit.TOKEN
    unit = KL_UNIT[spec.kl_unit].removeprefix("nats")
    confirmed = _confirmed(standing, chosen)
    if confirmed is not None:
        kl = confirmed.arm.kl_token if is_token else confirmed.arm.kl_seq
        return f"{score(confirmed.place.gold)}*", f"{number(kl)}{unit}"
    key = "eval/kl_token" if is_token else "eval/kl_seq"
    return score(best.value), f"{number(best.evaluation.get(key))}{unit}"


def _confirmed(standing: Standing, chosen: TrialStand | None) -> Confirmed | None:
    """The confirmation, where it is of what is recommended now."""
    found = find_confirmed(standing.path)
    return (
        found if found is not None and chosen is not None and found.is_of(chosen.number) else None
    )


def age_short(seconds: float) -> str:
    """An age in its largest unit: ``12 s``, ``5 min``, ``13 h``, ``9 d``."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _as_json(item: Listed) -> dict[str, object]:
    standing = item.standing
    if standing is None:
        return {"study": item.path, "state": "broken", "problem": item.problem}
    best, spec = standing.best, standing.spec
    chosen = recommended_trial(standing)
    confirmed = _confirmed(standing, chosen)
    row = {} if best is None else best.evaluation
    return {
        "study": item.path,
        "name": None if spec is None else spec.name,
        "state": state_word(standing),
        "members": members_json(standing.holder.crew),
        "trials_ended": standing.num_counted,
        "budget_trials": None if spec is None else spec.budget.trials,
        "recommended_trial": None if chosen is None else chosen.number,
        "best_trial": None if best is None else best.number,
        "best_value": None if best is None else best.value,
        "kl_token": row.get("eval/kl_token"),
        "kl_seq": row.get("eval/kl_seq"),
        "confirmed": None if confirmed is None else confirmed.as_json(confirmed.number),
        "last_row_age_s": None if standing.last is None else max(0.0, standing.now - standing.last),
        "disk_bytes": standing.disk_bytes,
        "unreadable": list(standing.broken),
    }

"""``kltune validate``: a study folder in, its go / no-go out: a table, validate.json, .md and .html in the folder.

Nothing is trained and no test prompt is looked at. Gold is run twice more on completions that were kept.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from kltune.confirm.result import read_confirmed
from kltune.errors import ExitCode, KltuneError, RunError, StudyError
from kltune.grade import Grade
from kltune.launch.judges import remembers
from kltune.launch.made_rewards import RewardPlace
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.metrics.jsonl import encode, read_json, read_rows, write_json
from kltune.metrics.rows import SAMPLES, Row
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.recommend import NoAnswer, recommend
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.spec.load import LoadedSpec, resolve_path
from kltune.tasks.calls_made import made
from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.registry import load_task
from kltune.tasks.thought import split_thought
from kltune.transfer.result import FILE as TRANSFERRED
from kltune.transfer.result import TransferResult
from kltune.trial.record import read_trial
from kltune.validate.lines import Evidence, validate
from kltune.validate.page import validation_page
from kltune.validate.result import Validation
from kltune.validate.reward import Readings
from kltune.validate.table import validation_table

NAME = "validate"
MOST_READ = 64
"""Completions that gold reads twice: a judge may cost money."""

GoldOf = Callable[[StudyRows], tuple[Scorer, Mapping[str, Any]]]
"""A study in, its gold and its select prompts by id out."""


@dataclass(frozen=True, slots=True)
class ValidateRequest:
    """The flags of ``kltune validate``."""

    study_path: Path
    is_gold_read: bool = True
    """Run the gold function twice on kept completions."""
    as_json: bool = False


def run_validate(request: ValidateRequest, gold_of: GoldOf | None = None) -> ExitCode:
    """Judge the study; exit code 4 where a check failed.

    Raises:
        StudyError: the folder is no study, can't be written to, or holds a broken confirmation.
        RunError: the page can't be written after all.
    """
    study = read_study(request.study_path)
    _check_writable(study.path)
    with reserved_stdout(is_reserved=request.as_json) as result:
        answer = recommend(study)
        best = None if isinstance(answer, NoAnswer) else answer.best
        found = validate(study, answer, _evidence(study, best, request, gold_of or _gold_of_spec))
        _show(found, result, as_json=request.as_json)
        _write(found, study.path, request.study_path)
    return ExitCode.GATE_FAILED if found.grade is Grade.FAIL else ExitCode.DONE


def _evidence(
    study: StudyRows, best: TrialRow | None, request: ValidateRequest, gold_of: GoldOf
) -> Evidence:
    confirmed, transfers = read_confirmed(study.path), _transfers(study.path)
    if best is None:
        return Evidence((), (), "there is no setting to judge", confirmed, transfers)
    samples = _kept(best.folder)
    gold: Readings | str = "it was switched off (--no-gold)"
    if request.is_gold_read:
        gold = _read_gold(study, best, samples, gold_of)
    return Evidence(read_trial(best.folder).steps, samples, gold, confirmed, transfers)


def _kept(folder: Path) -> list[Row]:
    """All kept completions; of a step that several attempts judged, the latest one's."""
    rows = read_rows(folder / SAMPLES) if (folder / SAMPLES).is_file() else []
    latest: dict[int, int] = {}
    for row in rows:
        latest[row["step"]] = max(row["attempt"], latest.get(row["step"], 0))
    return [row for row in rows if row["attempt"] == latest[row["step"]]]


def _read_gold(
    study: StudyRows, best: TrialRow, samples: Sequence[Row], gold_of: GoldOf
) -> Readings | str:
    """Gold of kept completions twice; why not, where it can't be run here."""
    try:
        gold, prompts = gold_of(study)
    except KltuneError as error:
        return f"it can't be loaded here ({error})"
    chosen = [row for row in reversed(samples) if row["prompt_id"] in prompts][:MOST_READ]
    mark = study.spec.model.answer_after
    if not chosen:
        return "no completion was kept (evaluate.keep), or the prompts are others now"
    # Token ids were not kept; a gold that needs them says so by failing.
    asked = [
        Sample(prompts[row["prompt_id"]], answer, (), bool(row["ended"]), thought)
        for row in chosen
        for thought, answer in [split_thought(row["completion"], mark)]
    ]
    say(f"{gold.name}: reading {len(asked)} kept completions of trial {best.number} twice ...")
    try:
        first = gold(asked)
        # A judge does not repeat itself by being asked: the second reading is by one that knows no reply yet.
        again = gold_of(study)[0] if remembers(gold) else gold
        second = again(asked)
    except KltuneError as error:
        return f"it failed ({error})"
    return Readings(_floats(first), _floats(second), _floats([row["gold"] for row in chosen]))


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(float("nan") if v is None else float(v) for v in values)


def _gold_of_spec(study: StudyRows) -> tuple[Scorer, Mapping[str, Any]]:
    """The study's own, found from the current folder or its own, made ready; a judge knows none of its replies."""
    loaded = LoadedSpec(study.spec, "", study.path / "spec.yaml")

    def look_up(text: str) -> Path:
        return resolve_path(loaded, text)

    task = load_task(study.spec.task, look_up)
    splits = task.splits
    place = RewardPlace(look_up, (*splits.train, *splits.select, *splits.test))
    return made(task.gold, place.make), {prompt.id: prompt for prompt in splits.select}


def _transfers(study_path: Path) -> list[TransferResult]:
    """Comparisons over sizes beside the study that hold it, the latest last."""
    here = study_path.resolve()
    files = sorted(
        here.parent.glob(f"transfer/*/{TRANSFERRED}"), key=lambda path: path.stat().st_mtime
    )
    found: list[TransferResult] = []
    for path in files:
        try:
            found.append(TransferResult.from_json(read_json(path)))
        except StudyError as error:
            say(f"note: {path} is left out: {error}")
    return [one for one in found if here.name in {sized.study for sized in one.studies}]


def _show(found: Validation, result: TextIO, *, as_json: bool) -> None:
    # Shown before it is written: a full disk must not cost the answer.
    if as_json:
        result.write(encode(found.as_json()) + "\n")
        result.flush()
    else:
        Console(file=result).print(validation_table(found))


def _check_writable(study_path: Path) -> None:
    """Refuse a folder that can't take the results, before gold is run; nothing is made.

    Raises:
        StudyError: what is in the way.
    """
    if not os.access(study_path, os.W_OK | os.X_OK):
        raise StudyError(
            f"{study_path}: can't be written to, and the validation belongs there; make it writable or copy the study"
        )
    for path in _paths(study_path):
        if path.is_dir():
            raise StudyError(
                f"{path}: is a folder, and the validation would be written there; move it away"
            )


def _paths(study_path: Path) -> list[Path]:
    return [study_path / f"{NAME}{ending}" for ending in (".json", ".html", ".md")]


def _as_typed(given: Path) -> str:
    """A study's path for a command on the page: from here where it lies below, else as it was given."""
    here = Path.cwd()
    shown = given.relative_to(here) if given.is_relative_to(here) else given
    return shlex.quote(str(shown))


def _write(found: Validation, study_path: Path, given: Path) -> None:
    page = validation_page(found, _as_typed(given))
    texts = {".html": render_page(page), ".md": render_markdown(page)}
    paths = _paths(study_path)
    verb = "replaced" if paths[0].exists() else "wrote"
    try:
        write_json(paths[0], found.as_json())
        for ending, text in texts.items():
            _replace(study_path / f"{NAME}{ending}", text)
    except OSError as error:
        raise RunError(
            f"{study_path}: the validation can't be written there: {error.strerror}"
        ) from error
    say(f"{verb} {', '.join(str(path) for path in paths)}")


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)

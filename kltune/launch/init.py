"""``kltune init``: flags and answers in, a spec (and examples of what it names) on disk out.

Nothing is written before every answer is known and sound; what was begun is taken back on Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.init_questions import (
    Asker,
    ask_all,
    ask_terminal,
    minutes_of,
    on_terminal,
    task_of,
)
from kltune.launch.saying import say
from kltune.metrics.jsonl import encode
from kltune.scaffold.draft import SpecDraft
from kltune.scaffold.examples import missing_files
from kltune.scaffold.fits import fit_horizon, fit_lengths, fit_updates
from kltune.scaffold.sound import check_answers, checked
from kltune.scaffold.start import Answers, start_draft
from kltune.screen.ending import near

TRAINERS: Final = ("trl", "verl", "openrlhf", "nemo-rl")
"""Whose configurations can be read."""

_OWN: Final = ("prompts", "gold", "proxy")


@dataclass(frozen=True, slots=True)
class InitRequest:
    """The flags of ``kltune init``; None: not given."""

    spec_path: Path
    task: str | None = None
    model: str | None = None
    prompts: str | None = None
    gold: str | None = None
    proxy: str | None = None
    algorithm: str | None = None
    minutes: float | None = None
    source: tuple[str, Path] | None = None
    """A trainer's name and its configuration."""
    source_version: str | None = None
    """Release of that trainer; None: the newest on record."""
    force: bool = False
    as_json: bool = False

    @property
    def given(self) -> frozenset[str]:
        """What need not be asked."""
        names = ("task", "model", *_OWN, "algorithm", "minutes")
        found = {name for name in names if getattr(self, name) is not None}
        return frozenset(found | {"task"} if self._is_own else found)

    @property
    def _is_own(self) -> bool:
        """Whether the flags speak of a task of one's own."""
        if self.task is not None:
            return self.task == "own"
        has_model = self.model is not None and not self.model.startswith("builtin:")
        is_scored = self.prompts is not None or self.gold is not None
        return is_scored or self.proxy not in (None, "learned") or has_model or bool(self.source)

    def answers(self) -> Answers:
        """What the flags say, defaults for the rest.

        Raises:
            SpecError: flags that can't be, or that contradict each other.
        """
        task = None if self._is_own else task_of(self.task or "kitchen")
        found = Answers(name=study_name(self.spec_path), task=task, model=self.model)
        if task is not None and (self.prompts or self.gold or self.proxy not in (None, "learned")):
            raise SpecError(
                f"--task {task}: has prompts and gold of its own, so --prompts, --gold and --proxy FUNCTION "
                "have no meaning; for yours: --task own"
            )
        names = [name for name in (*_OWN, "algorithm") if getattr(self, name) is not None]
        found = replace(found, **{name: getattr(self, name) for name in names})
        if self.minutes is not None:
            found = replace(found, minutes=minutes_of(f"{self.minutes:g}"))
        return found


def run_init(request: InitRequest, ask: Asker | None = None) -> ExitCode:
    """Ask what is open, write the spec, say what comes next. ``ask`` stands in for the terminal.

    Raises:
        SpecError: flags or answers that make no spec, or a file that is there; nothing was written.
        RunError: a file can't be written; those made before it are taken back.
    """
    if ask is None and on_terminal():
        ask = ask_terminal
    try:
        _refuse_taken(request, ask)
        answers = request.answers()
        carried = _carried(request)
        base = None if carried is None else carried.get("model.base")
        if base is not None and answers.model is None and answers.task is None:
            answers = replace(answers, model=str(base.value))
        if ask is not None:
            given = request.given | _known_from(carried)
            answers = ask_all(answers, given, ask, request.spec_path)
        elif not answers.base:
            raise SpecError(
                "--model: needed for a task of your own: a folder, a hub id, or package:NAME "
                "(or --task kitchen, which has its own)"
            )
        check_answers(answers, request.spec_path)
        draft = _whole(request, answers, carried)
        files = {
            **missing_files(answers, request.spec_path),
            request.spec_path: checked(draft, request.spec_path).text,
        }
        _write_all(files)
    except KeyboardInterrupt:
        say("stopped; nothing was written")
        return ExitCode.INTERRUPTED
    _tell(request, draft, tuple(files))
    return ExitCode.DONE


def study_name(spec_path: Path) -> str:
    """A study's name from its spec's: that of the file, or of its folder where the file is just `spec.yaml`."""
    path = spec_path.absolute()
    text = path.parent.name if path.stem == "spec" else path.stem
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-_")[:100]
    return clean or "study"


def _refuse_taken(request: InitRequest, ask: Asker | None) -> None:
    path = request.spec_path
    if path.suffix not in (".yaml", ".yml"):
        raise SpecError(f"FILE: a spec is a .yaml file (got {str(path)!r})")
    if path.is_dir():
        raise SpecError(f"FILE: {path} is a folder; give the path of a file in it")
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_file():
        raise SpecError(f"FILE: {path} is there and is no ordinary file; it is left alone")
    if request.force:
        return
    if ask is None:
        raise SpecError(f"FILE: {path} is there; --force replaces it, or give another path")
    if ask(f"{path} is there. Replace it? y or n [n]: ").lower() not in ("y", "yes"):
        raise SpecError(f"FILE: {path} is left as it is; give another path")


def _carried(request: InitRequest) -> SpecDraft | None:
    """What another trainer's configuration says."""
    if request.source is None:
        if request.source_version is not None:
            raise SpecError("--from-version: only with --from")
        return None
    trainer, path = request.source
    if trainer not in TRAINERS:
        raise SpecError(f"--from: must be one of {', '.join(TRAINERS)} (got {trainer!r})")
    from kltune.adopt.draft import draft_of

    return draft_of(trainer, path, request.source_version)


def _known_from(carried: SpecDraft | None) -> frozenset[str]:
    """Questions that the configuration answers."""
    keys = {"model": "model.base", "algorithm": "trainer.algorithm"}
    if carried is None:
        return frozenset()
    return frozenset(name for name, key in keys.items() if carried.get(key) is not None)


def _whole(request: InitRequest, answers: Answers, carried: SpecDraft | None) -> SpecDraft:
    draft = start_draft(answers)
    if carried is None:
        return draft
    flags = {"model": "model.base", "algorithm": "trainer.algorithm", "minutes": "budget.wall"}
    kept = ["name", "task", *(key for flag, key in flags.items() if flag in request.given)]
    theirs, own = carried.get("model.base"), draft.get("model.base")
    if answers.task is not None and theirs is not None and own is not None:
        kept.append("model.base")
        words = f"{own.comment}; not {theirs.value}: --model chooses another"
        draft = draft.put("model.base", own.value, words)
    draft = fit_updates(fit_horizon(draft.under(carried, kept)))
    return fit_lengths(draft, answers, request.spec_path)


def _write_all(files: Mapping[Path, str]) -> None:
    """Write each file whole; the spec, the last one, replaces what was there. All or none of the new ones stays."""
    made: list[Path] = []
    try:
        for path, text in files.items():
            made += _make_folders(path.parent)
            scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            is_new = not path.exists()
            made.append(scratch)
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)
            made[-1:] = [path] if is_new else []
    except OSError as error:
        _take_back(made)
        raise RunError(f"{error.filename}: it can't be written: {error.strerror}") from error
    except KeyboardInterrupt:
        _take_back(made)
        raise


def _make_folders(folder: Path) -> list[Path]:
    new = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return new


def _take_back(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):  # someone else put a file there meanwhile: it stays
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


def _tell(request: InitRequest, draft: SpecDraft, files: tuple[Path, ...]) -> None:
    spec = request.spec_path
    examples = files[:-1]
    word = shlex.quote(str(spec))
    steps = (f"kltune check {word}", f"kltune preview {word}", f"kltune sweep {word} --dry-run")
    for warning in draft.warnings:
        say(f"warning: {warning}")
    if request.as_json:
        facts = {"spec": spec, "examples": examples, "warnings": draft.warnings, "next": steps}
        sys.stdout.write(encode(facts) + "\n")
        return
    for path in examples:
        say(f"wrote {near(path)}: examples; put your own in")
    say(f"wrote {near(spec)}: the study goes to studies/{study_name(spec)}/")
    says = (
        "would its numbers mean anything?",
        "a forecast without training",
        "the plan and its minutes; then the same without --dry-run",
    )
    width = max(map(len, steps))
    say("Next:")
    for step, meaning in zip(steps, says, strict=True):
        say(f"  {step:{width}}   # {meaning}")

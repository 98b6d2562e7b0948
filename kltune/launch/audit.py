"""``kltune audit``: a request in, a table, JSON and a plot out; nothing is trained but a spec's first steps.

Flags and files are checked before anything heavy loads.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console

from kltune.audit.gather import Block, Question, gather
from kltune.audit.plot import save_plot
from kltune.audit.result import AuditResult
from kltune.audit.table import audit_table
from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import share_cores
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import encode, write_json
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, load_spec

DEFAULT_STEPS = 10
"""Steps with beta 0 that take a spec's start policy away from the reference."""

Kind = Literal["spec", "trial", "models"]

_AUDITABLE = "give a spec (YAML), a study folder with --trial, or a model folder with --reference and --prompts"


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The flags of ``kltune audit``."""

    target: Path
    steps: int | None = None
    trial: int | None = None
    checkpoint: Literal["best", "last"] | None = None
    reference: Path | None = None
    prompts: Path | None = None
    samples: int | None = None
    """Completions; none: enough for the built-in task."""
    seed: int | None = None
    out: Path | None = None
    as_json: bool = False

    def kind(self) -> Kind:
        """What the target is.

        Raises:
            SpecError: nothing that can be audited, or flags that don't fit it.
        """
        found = self._kind_of_target()
        problems = [*self._missing(found), *self._unfitting(found)]
        if problems:
            raise SpecError("; ".join(problems))
        return found

    def _kind_of_target(self) -> Kind:
        target = self.target
        if not target.exists():
            raise SpecError(f"{target}: no such file or folder")
        if target.is_file():
            return "spec"
        if (target / "resolved.json").is_file():
            return "trial"
        if (target / "config.json").is_file():
            return "models"
        raise SpecError(f"{target}: can't be audited; {_AUDITABLE}")

    def _missing(self, kind: Kind) -> list[str]:
        problems: list[str] = []
        if kind == "trial" and self.trial is None:
            folders = sorted(path.name for path in (self.target / "trials").glob("[0-9]*"))
            numbers = ", ".join(str(int(name)) for name in folders) or "none yet"
            problems.append(f"--trial: which trial of {self.target}? It has: {numbers}")
        if kind == "models" and self.reference is None:
            problems.append("--reference: the folder of the model to compare with is needed")
        elif kind == "models" and not _is_model(self.reference):
            problems.append(
                f"--reference: {self.reference} is no model folder (one that holds a config.json)"
            )
        if kind == "models" and self.prompts is None:
            problems.append("--prompts: a .jsonl or .txt file of prompts is needed")
        return problems

    def _unfitting(self, kind: Kind) -> list[str]:
        belongs = {
            "--steps": ("spec", self.steps),
            "--trial": ("trial", self.trial),
            "--checkpoint": ("trial", self.checkpoint),
            "--reference": ("models", self.reference),
            "--prompts": ("models", self.prompts),
        }
        names = {"spec": "a spec", "trial": "a study folder", "models": "a model folder"}
        return [
            f"{flag}: only with {names[owner]} ({self.target} is {names[kind]})"
            for flag, (owner, value) in belongs.items()
            if value is not None and owner != kind
        ]


def _is_model(folder: Path | None) -> bool:
    return folder is not None and (folder / "config.json").is_file()


@dataclass(frozen=True, slots=True)
class Subject:
    """A pair that is ready to be probed."""

    name: str
    """Of the folder for its results."""
    question: Question
    blocks: Iterable[Block]


AUDITS = Path("studies") / "audits"
"""Where results go unless the request says otherwise."""

Find = Callable[[AuditRequest, Kind], Subject]


def run_audit(request: AuditRequest, find: Find | None = None) -> ExitCode:
    """Audit what the request names; ``find`` stands in for the loading of models.

    Raises:
        SpecError: a spec, a folder or a flag that can't be used; nothing was started.
        StudyError: a study folder that can't be read.
        RunError: a checkpoint that can't be read, or a proxy that failed.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    start = time.perf_counter()
    kind = request.kind()
    if kind == "spec":
        check_paths(_load(request.target))
    if request.out is not None:
        _check_writable(request.out)
    # Many backward passes of a small model: beside busy processes a thread that waits by spinning at all
    # takes more time from its partner than it saves (2 cores, load 4: 27 s of processor time against 15).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    share_cores()
    with reserved_stdout(is_reserved=request.as_json) as result:
        if find is None:
            # torch takes seconds to import: not before the flags are sound.
            from kltune.launch.subjects import find_subject

            find = find_subject
        subject = find(request, kind)
        audited = gather(subject.blocks, subject.question, _Progress(subject.question.num_blocks))
        audited = replace(audited, seconds=time.perf_counter() - start)
        _write(request, subject, audited, result)
    return ExitCode.DONE


def _load(path: Path) -> LoadedSpec:
    """Read a spec; a file that isn't even called one is told so, not where its YAML breaks."""
    try:
        return load_spec(path)
    except SpecError:
        if path.suffix.lower() in (".yaml", ".yml"):
            raise
        raise SpecError(f"{path}: is no spec (a YAML file); {_AUDITABLE}") from None


def _check_writable(folder: Path) -> None:
    """Refuse a folder that can't take the results, before anything is computed; nothing is made."""
    if not takes_files(folder):
        raise SpecError(f"--out: {folder} can't be written to; give a folder that can")


@dataclass(slots=True)
class _Progress:
    """Says now and then how far it is."""

    total: int

    def __call__(self, done: int) -> None:
        if done * 4 // self.total > (done - 1) * 4 // self.total:
            say(f"probed {done} of {self.total} blocks")


def _write(request: AuditRequest, subject: Subject, audited: AuditResult, result: TextIO) -> None:
    folder = request.out or _unused(AUDITS / subject.name)
    facts = audited.as_json()
    # Shown before it is written: a full disk must not cost the answer.
    if request.as_json:
        result.write(encode(facts) + "\n")
        result.flush()
    else:
        Console(file=result).print(audit_table(audited))
    verb = "replaced" if (folder / "audit.json").exists() else "wrote"
    try:
        write_json(folder / "audit.json", facts)
        save_plot(audited, folder / "audit.png")
    except OSError as error:
        raise RunError(f"{folder}: the audit can't be written there: {error.strerror}") from error
    say(f"{verb} {folder / 'audit.json'} and {folder / 'audit.png'}")


def _unused(folder: Path) -> Path:
    """``folder``, or ``folder-2`` and so on where an audit already lies there."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(f for f in itertools.chain([folder], numbered) if not (f / "audit.json").exists())

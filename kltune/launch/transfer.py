"""``kltune transfer``: studies of several model sizes in; table, JSON and a plot out. Nothing is trained.

Flags and folders are checked before anything is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import encode, write_json
from kltune.transfer.result import FILE, PLOT, TransferResult

TRANSFERS = Path("studies") / "transfer"
"""Where results go unless the request says otherwise."""


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """The flags of ``kltune transfer``."""

    studies: tuple[Path, ...]
    parameters: tuple[int, ...] | None = None
    """Of each study's model; none: counted in its files."""
    seed: int = 0
    out: Path | None = None
    as_json: bool = False

    def check(self) -> None:
        """Refuse what can't be compared, before anything is read.

        Raises:
            SpecError: all of it in one message.
        """
        problems: list[str] = []
        if len(self.studies) < 2:
            problems.append(
                f"STUDY: at least two study folders are needed, of other model sizes (got {len(self.studies)})"
            )
        for path in self.studies:
            if not path.exists():
                problems.append(f"STUDY: {path}: no such folder")
            elif not (path / "resolved.json").is_file():
                problems.append(f"STUDY: {path}: not a study folder (no resolved.json in it)")
        places = [path.resolve() for path in self.studies]
        twice = sorted({str(p) for p in places if places.count(p) > 1})
        problems += [f"STUDY: {path}: given twice" for path in twice]
        if self.parameters is not None and len(self.parameters) != len(self.studies):
            problems.append(
                f"--parameters: one number for each STUDY ({len(self.studies)}) is needed "
                f"(got {len(self.parameters)})"
            )
        if self.out is not None and not takes_files(self.out):
            problems.append(f"--out: {self.out} can't be written to; give a folder that can")
        if problems:
            raise SpecError("; ".join(problems))


def run_transfer(request: TransferRequest) -> ExitCode:
    """Compare the studies that the request names.

    Raises:
        SpecError: flags, or studies that can't be compared; nothing was written.
        StudyError: a study folder that can't be read.
        RunError: the results can't be written.
    """
    request.check()
    from kltune.launch.transfer_subjects import read_subjects
    from kltune.transfer.compare import compare_sizes

    with reserved_stdout(is_reserved=request.as_json) as result:
        say(f"reading {len(request.studies)} studies ...")
        subjects = read_subjects(request.studies, request.parameters)
        found = compare_sizes(subjects, request.seed)
        for note in found.notes[:-1]:
            say(f"warning: {note}")
        _write(request, found, result)
    return ExitCode.DONE


def _write(request: TransferRequest, found: TransferResult, result: TextIO) -> None:
    from kltune.transfer.plot import save_plot
    from kltune.transfer.table import transfer_table

    folder = request.out or _unused(TRANSFERS / _name(request.studies))
    facts = found.as_json()
    # Shown before it is written: a full disk must not cost the answer.
    if request.as_json:
        result.write(encode(facts) + "\n")
        result.flush()
    else:
        Console(file=result).print(transfer_table(found))
    verb = "replaced" if (folder / FILE).exists() else "wrote"
    try:
        write_json(folder / FILE, facts)
        save_plot(found, folder / PLOT)
    except OSError as error:
        raise RunError(f"{folder}: the result can't be written there: {error.strerror}") from error
    say(f"{verb} {folder / FILE} and {folder / PLOT}")


def _name(studies: Sequence[Path]) -> str:
    """What the folders' names have in common at the start, else the first."""
    names = [path.resolve().name for path in studies]
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike).rstrip("-_. ") or names[0]


def _unused(folder: Path) -> Path:
    """``folder``, or ``folder-2`` and so on where a result already lies there."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(f for f in itertools.chain([folder], numbered) if not (f / FILE).exists())

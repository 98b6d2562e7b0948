"""``kltune export``: a study in, its setting as another trainer's configuration, or its tables, out. Nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kltune.errors import ExitCode, SpecError
from kltune.export.cautions import doubt_words
from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.plain import plain
from kltune.export.setting import Winner
from kltune.export.target import Sizes, Target, make_target
from kltune.export.tripwire import tripwire
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl
from kltune.export.winner import compared, confirmed_instead, of_trial, recommended
from kltune.launch.put import put, refused, sealed
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.metrics.jsonl import encode
from kltune.report.recommend import NoAnswer, recommend
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.trial.words import is_noise, setting_short

EXPORTERS: Final[Mapping[str, Callable[[Winner, Target], Exported]]] = MappingProxyType(
    {
        "trl": export_trl,
        "verl": export_verl,
        "openrlhf": export_openrlhf,
        "nemo-rl": export_nemo_rl,
    }
)
TABLES: Final = ("csv", "parquet")
"""Targets that are the study's own tables, not a setting."""
TARGETS: Final = (*EXPORTERS, "json", "tripwire", "peft", *TABLES)
WATCHED: Final = ("trl", "verl", "openrlhf")
"""Frameworks whose log a tripwire can read, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The flags of ``kltune export``."""

    study_path: Path
    to: str
    trial: int | None = None
    """None: the recommended one."""
    version: str | None = None
    """Of the framework; None: the newest on record."""
    framework: str | None = None
    """Whose log a tripwire reads; None: of the first of ``WATCHED`` that can run the setting."""
    sizes: Sizes = field(default_factory=Sizes)
    out: Path | None = None
    """None: stdout."""
    force: bool = False
    """Replace a file at ``out`` that kltune did not write."""

    def check(self) -> None:
        """Refuse what can't be written, before anything is read.

        Raises:
            SpecError: all of it in one message.
        """
        problems: list[str] = []
        if self.to not in TARGETS:
            problems.append(f"--to: must be one of {', '.join(TARGETS)} (got {self.to!r})")
        else:
            problems += self._misplaced()
        if not self.study_path.is_dir():
            problems.append(f"STUDY: {self.study_path}: no such folder")
        if self.out is not None and self.to in TABLES:
            # pandas takes a second to import: only where tables are asked for.
            from kltune.frames.files import refused as tables_refused
            from kltune.frames.files import standing

            problems += tables_refused(self.out)
            if not problems and not self.force and (there := standing(self.out, self.to)):
                problems.append(
                    f"--out: {self.out} has {', '.join(there)} already; --force replaces them"
                )
        elif self.out is not None and self.to != "peft":
            problems += refused(self.out, force=self.force)
        if problems:
            raise SpecError("; ".join(problems))

    @property
    def speaks(self) -> str | None:
        """The framework in whose keys or log the result is; None: in no one's."""
        if self.to == "tripwire":
            return self.framework or "trl"
        return self.to if self.to in EXPORTERS else None

    def _misplaced(self) -> list[str]:
        """Flags that mean nothing here."""
        problems: list[str] = []
        if self.to == "tripwire" and self.framework not in (None, *WATCHED):
            problems.append(
                f"--framework: must be one of {', '.join(WATCHED)} (got {self.framework!r})"
            )
        if self.to != "tripwire" and self.framework is not None:
            problems.append(f"--framework: only with --to tripwire (got --to {self.to})")
        if self.version is not None and self.to in ("json", "peft", *TABLES):
            problems.append(f"--version: has no meaning with --to {self.to}")
        if self.force and (self.out is None or self.to == "peft"):
            problems.append("--force: only with --out FILE, or a folder of tables")
        if self.to in TABLES and self.trial is not None:
            problems.append(f"--trial: has no meaning with --to {self.to}, which writes all trials")
        if self.to in ("peft", *TABLES):
            if self.out is None:
                problems.append(f"--out: needed with --to {self.to}: a folder")
            if self.sizes != Sizes():
                problems.append(
                    "--batch, --group, --mean-tokens and --max-new-tokens: have no meaning with "
                    f"--to {self.to}"
                )
        return problems


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export gives: a text, or files that are written already."""

    text: str | None
    warnings: tuple[str, ...]
    done: tuple[str, ...] = ()
    """One line for each thing written."""


def run_export(request: ExportRequest) -> ExitCode:
    """Write the configuration or the tables, or say why there is nothing to write.

    Raises:
        SpecError: flags, or a setting that the framework can't run: with the nearest thing that works.
        StudyError: the folder is no study, or has no such trial.
        RunError: the file can't be written.
    """
    found = make_export(request)
    if isinstance(found, NoAnswer):
        say(" ".join((found.reason, "Nothing to export.", *found.advice)))
        return ExitCode.NO_FEASIBLE_TRIAL
    for warning in found.warnings:
        say(f"warning: {warning}")
    for line in found.done:
        say(line)
    if found.text is not None:
        _write(request, found.text)
    return ExitCode.DONE


def make_export(request: ExportRequest) -> ExportResult | NoAnswer:
    """The same without a word to anyone; a text is not written to ``out`` yet. Raises as `run_export`."""
    request.check()
    study = read_study(request.study_path)
    if request.to in TABLES:
        return _tables(request, study)
    doubts: tuple[str, ...] = ()
    if request.trial is None:
        winner = recommended(study)
        if winner is None:
            answer = recommend(study)
            assert isinstance(answer, NoAnswer), "there is no winner"
            return answer
        other = confirmed_instead(study)
        if other is not None:
            doubts = (
                f"the confirmation puts trial {other} above it: --trial {other} exports that one",
            )
    else:
        winner = of_trial(study, request.trial)
    if request.to == "peft":
        found = _adapter(request, winner)
    else:
        text, own = _text(request, study, winner, doubts)
        found = ExportResult(sealed(text), own)
    return replace(found, warnings=(*doubts, *found.warnings))


def _tables(request: ExportRequest, study: StudyRows) -> ExportResult:
    from kltune.frames.files import write_tables

    assert request.out is not None, "checked before"
    paths = write_tables(study, request.out, request.to)
    return ExportResult(None, (), tuple(f"wrote {path}" for path in paths))


def _adapter(request: ExportRequest, winner: Winner) -> ExportResult:
    from kltune.launch.export_peft import export_peft

    assert request.out is not None, "checked before"
    written = export_peft(request.study_path, winner, request.out)
    line = (
        f"wrote {written.path}: the adapter of trial {winner.source.trial} at step {written.step}"
    )
    return ExportResult(None, (*doubt_words(winner), *written.warnings), (line,))


def _text(
    request: ExportRequest, study: StudyRows, winner: Winner, doubts: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The file, and its own warnings; of plain facts ``doubts`` are a part too."""
    if request.speaks is None:
        # Sizes are checked alike for all; no framework's keys are needed.
        target = make_target(winner, "trl", None, request.sizes)
        facts = plain(winner, target)
        own = tuple(facts["warnings"])
        return encode({**facts, "warnings": [*doubts, *own]}) + "\n", own
    try:
        found = _first(request, request.speaks, winner)
    except SpecError as error:
        reason = str(error)
        if request.to == "tripwire":  # there a framework is named by another flag
            reason = reason.replace("--to ", "--framework ")
        other = _nearest(request, request.speaks, study, winner)
        if other is None:
            raise SpecError(reason) from error
        raise SpecError(f"{reason}. {_words(request.speaks, study, winner, other)}") from error
    return found.text, found.warnings


def _first(request: ExportRequest, framework: str, winner: Winner) -> Exported:
    """For ``framework``; a tripwire of no given one for the first that can run the setting."""
    try:
        return _exported(request, framework, winner)
    except SpecError:
        if request.to != "tripwire" or request.framework or request.version:
            raise
        for other in WATCHED:
            try:
                found = _exported(request, other, winner)
            except SpecError:
                continue
            words = (
                f"{framework} can't run this setting, so the tripwire reads the log of {other}: "
                f"--framework {framework} says why"
            )
            return replace(found, warnings=(words, *found.warnings))
        raise


def _exported(request: ExportRequest, framework: str, winner: Winner) -> Exported:
    target = make_target(winner, framework, request.version, request.sizes)
    found = EXPORTERS[framework](winner, target)
    return tripwire(winner, target, found) if request.to == "tripwire" else found


def _nearest(
    request: ExportRequest, framework: str, study: StudyRows, refused: Winner
) -> TrialRow | None:
    """The best other trial of the study that this framework can run."""
    candidates = [
        row
        for row in study.trials
        if row.is_candidate and not is_noise(row.origin) and row.number != refused.source.trial
    ]
    for row in sorted(candidates, key=lambda row: (-(row.value or 0.0), row.number)):
        winner = of_trial(study, row.number)
        try:
            _exported(request, framework, winner)
        except SpecError:
            continue
        return row
    return None


def _words(framework: str, study: StudyRows, refused: Winner, other: TrialRow) -> str:
    return (
        f"Of this study's other trials the best of the search that {framework} can run is trial {other.number} "
        f"({setting_short(other.setting, study.spec.kl_unit)}), "
        f"{compared(study, other.number, refused.source.trial)}: --trial {other.number}"
    )


def _write(request: ExportRequest, text: str) -> None:
    if request.out is None:
        with reserved_stdout(is_reserved=True) as result:
            result.write(text)
            result.flush()
        return
    say(f"{put(request.out, text, force=request.force)} {request.out}")

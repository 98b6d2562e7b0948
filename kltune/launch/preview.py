"""``kltune preview``: a request in, a forecast as table, JSON and picture out; nothing is trained.

Flags and files are checked before anything heavy loads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch import signals
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import share_cores
from kltune.launch.writable import takes_files
from kltune.launch.write_ranges import SpecFile, open_spec_file
from kltune.metrics.jsonl import encode, read_json, write_json
from kltune.preview.curves import Scored
from kltune.preview.forecast import forecast
from kltune.preview.plot import save_plot
from kltune.preview.result import FILE, Forecast, Subject
from kltune.preview.suggest import Search
from kltune.preview.table import preview_table
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, from_resolved, load_spec
from kltune.spec.search import Dimension
from kltune.spec.study import StudySpec
from kltune.spec.trial import BetaUnit

PREVIEWS = Path("studies") / "previews"
"""Where results go while a spec has no study yet."""

MIN_SAMPLES = 2
"""A prompt with one completion has nothing to choose from."""

Kind = Literal["spec", "study"]


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """The flags of ``kltune preview``."""

    target: Path
    samples: int | None = None
    """Completions per prompt; none: by the size of the model."""
    prompts: int | None = None
    """Select prompts; none: as many as trials are judged on, at least 32."""
    seed: int | None = None
    out: Path | None = None
    write: bool = False
    """Put the suggested ranges into the spec."""
    as_json: bool = False

    def kind(self) -> Kind:
        """What the target is.

        Raises:
            SpecError: nothing that can be previewed, or flags that don't fit it.
        """
        target = self.target
        problems: list[str] = []
        if not target.exists():
            raise SpecError(f"{target}: no such file or folder")
        kind: Kind = "spec" if target.is_file() else "study"
        if kind == "study" and not (target / "resolved.json").is_file():
            raise SpecError(
                f"{target}: is no study folder (no resolved.json in it); give a spec (YAML) or a study folder"
            )
        if kind == "study" and self.write:
            problems.append(
                "--write: only with a spec file; a study keeps the spec it was begun with"
            )
        if self.samples is not None and self.samples < MIN_SAMPLES:
            problems.append(f"--samples: must be at least {MIN_SAMPLES} (got {self.samples})")
        if problems:
            raise SpecError("; ".join(problems))
        return kind

    def load(self, kind: Kind) -> LoadedSpec:
        """The spec that is meant.

        Raises:
            SpecError: it can't be read, or anything in it is wrong.
        """
        if kind == "study":
            spec = from_resolved(read_json(self.target / "resolved.json"))
            return LoadedSpec(spec, "", self.target / "spec.yaml")
        loaded = load_spec(self.target)
        check_paths(loaded)
        return loaded


@dataclass(frozen=True, slots=True)
class Drawn:
    """Completions that are scored, and what they are of."""

    scored: Scored
    subject: Subject
    notes: tuple[str, ...] = ()
    train: Scored | None = None
    """A few completions of train prompts."""


Draw = Callable[[PreviewRequest, LoadedSpec, Path | None], Drawn]


def run_preview(request: PreviewRequest, draw: Draw | None = None) -> ExitCode:
    """Forecast what the request names; ``draw`` stands in for the loading of models.

    SIGINT and SIGTERM stop it at once, with the exit code of each.

    Raises:
        SpecError: a spec, a folder or a flag that can't be used; nothing was started.
        StudyError: a study folder that can't be read.
        RunError: a scorer that failed, a checkpoint that can't be read, or results that can't be written.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    writing = Writing()
    stop = signals.StopRequest(None, writing.hear)
    try:
        with stop.listening():
            return _preview(request, draw, stop, writing)
    except KeyboardInterrupt:
        say(
            "stopped while the results were written: run the same command again"
            if writing.has_begun
            else "stopped; nothing was written"
        )
        return signals.EXIT_CODES.get(stop() or "", ExitCode.INTERRUPTED)


@dataclass(slots=True)
class Writing:
    """Whether results are being written: until then a signal stops at once, since nothing is lost by it."""

    has_begun: bool = False

    def hear(self, reason: str) -> None:
        """A first signal: it waits for the writing, which takes a second."""
        if not self.has_begun:
            raise KeyboardInterrupt
        say(f"{reason}: the results are being written, then it ends")


def _preview(
    request: PreviewRequest, draw: Draw | None, stop: signals.StopRequest, writing: Writing
) -> ExitCode:
    start = time.perf_counter()
    kind = request.kind()
    loaded = request.load(kind)
    spec_file = open_spec_file(loaded) if request.write else None
    study = request.target if kind == "study" else _study_of(loaded.spec)
    folder = request.out or study or PREVIEWS / loaded.spec.name
    _check_writable(folder, "--out" if request.out else "the results")
    # As `kltune audit`: beside busy processes a thread that waits by spinning costs more than it saves.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    share_cores()
    with reserved_stdout(is_reserved=request.as_json) as result:
        if draw is None:
            # torch takes seconds to import: not before the flags are sound.
            from kltune.launch.preview_samples import draw_samples

            draw = draw_samples
        drawn = draw(request, loaded, study)
        notes = (*drawn.notes, *_doubts(loaded.spec))
        found = forecast(drawn.scored, drawn.subject, _search_of(loaded.spec), drawn.train, notes)
        found = replace(found, seconds=time.perf_counter() - start)
        if stop() is not None:  # a scorer caught what the signal raised
            raise KeyboardInterrupt
        _show(request, found, result)
        writing.has_begun = True
        _keep(found, folder)
        if spec_file is not None:
            _write_ranges(spec_file, found, loaded.spec)
    return ExitCode.DONE


def _search_of(spec: StudySpec) -> Search:
    beta = None if spec.beta_unit is BetaUnit.NATIVE else _range_of(spec.search.beta)
    limit = spec.objective.kl_limit
    return Search(spec.kl_unit.value, limit, beta, _range_of(spec.search.target_kl))


def _range_of(dimension: Dimension | None) -> tuple[float, float] | None:
    return None if dimension is None else dimension.log or dimension.uniform


def _study_of(spec: StudySpec) -> Path | None:
    """The study of the same name, where it has the same model, task and way of sampling."""
    folder = Path("studies") / spec.name
    if not (folder / "resolved.json").is_file():
        return None
    other = from_resolved(read_json(folder / "resolved.json"))
    if _sampled(other) == _sampled(spec):
        return folder
    say(f"{folder} has another model, task or way of sampling: nothing of it is used")
    return None


def _sampled(spec: StudySpec) -> tuple[object, ...]:
    trainer = spec.trainer
    return (spec.model.base, spec.task, trainer.max_new_tokens, trainer.temperature, spec.seed)


def _doubts(spec: StudySpec) -> tuple[str, ...]:
    """Where training sees something else than the forecast does."""
    notes: list[str] = []
    if spec.trainer.reward != type(spec.trainer.reward)():
        notes.append(
            "trainer.reward changes scores before they are rewards; the forecast is of the raw proxy"
        )
    if spec.beta_unit is BetaUnit.NATIVE:
        notes.append(
            "beta_unit is native: the betas here are in reward per nat of sequence KL; beside GRPO's advantages divide "
            "by sigma_R of the train prompts, which a sweep measures"
        )
    return tuple(notes)


def _check_writable(folder: Path, what: str) -> None:
    """Refuse a folder that can't take the results, before anything is computed; nothing is made."""
    if not takes_files(folder):
        raise SpecError(f"{what}: {folder} can't be written to; give a folder that can by --out")


def _show(request: PreviewRequest, found: Forecast, result: TextIO) -> None:
    # Shown before it is written: a full disk must not cost the answer.
    if request.as_json:
        result.write(encode(found.as_json()) + "\n")
        result.flush()
    else:
        Console(file=result).print(preview_table(found))


def _keep(found: Forecast, folder: Path) -> None:
    verb = "replaced" if (folder / FILE).exists() else "wrote"
    try:
        write_json(folder / FILE, found.as_json())
        save_plot(found, folder / "preview.png")
    except OSError as error:
        raise RunError(
            f"{folder}: the forecast can't be written there: {error.strerror}"
        ) from error
    say(f"{verb} {folder / FILE} and {folder / 'preview.png'}")


def _write_ranges(file: SpecFile, found: Forecast, spec: StudySpec) -> None:
    beta = None if spec.beta_unit is BetaUnit.NATIVE else found.suggestion.beta
    for line in file.write(beta, found.suggestion.target_kl):
        say(line)

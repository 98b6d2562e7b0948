"""A study folder in, the study as an object for notebooks and scripts out. Nothing is trained."""

from __future__ import annotations

import html
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Final

import pandas as pd

from kltune.api.fits import Fits, fit_study
from kltune.errors import SpecError, StudyError
from kltune.export.target import Sizes
from kltune.frames.tables import evals_table, samples_table, steps_table, trials_table
from kltune.launch.export import ExportRequest, make_export
from kltune.launch.put import put
from kltune.report.answer import answer_facts, headline
from kltune.report.build import ReportPaths, build_report
from kltune.report.confirm_blocks import confirmed_words
from kltune.report.recommend import Answer, NoAnswer, Recommendation, recommend
from kltune.report.rows import StudyRows, TrialRow, read_study
from kltune.report.text import visible
from kltune.report.unended import progress_words
from kltune.spec.study import StudySpec

_FLAG: Final = re.compile(
    r"--(to|trial|version|framework|batch|group|mean-tokens|max-new-tokens|out|force)\b"
)
_SHOWN: Final = ("origin", "penalty", "beta", "state", "value", "kl_token", "best_step")
_MOST_ROWS: Final = 12


@dataclass(frozen=True, slots=True)
class Advice:
    """The report's answer in plain text."""

    headline: str
    facts: tuple[tuple[str, str], ...]
    """Labelled sentences; where there is no answer, what to change."""
    is_answer: bool
    """Whether a setting is recommended."""

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"{label}: {text}" for label, text in self.facts)])


class Study:
    """A study as its folder said when it was opened: a running one has more to say after `refresh`."""

    def __init__(self, rows: StudyRows) -> None:
        self.rows = rows
        """The record as the report reads it."""

    @property
    def path(self) -> Path:
        """The folder."""
        return self.rows.path

    @property
    def name(self) -> str:
        """The name in its spec."""
        return self.rows.spec.name

    @property
    def spec(self) -> StudySpec:
        """What was asked, defaults included."""
        return self.rows.spec

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial: setting, origin, ending, gold, KL at the step that it is judged by, cost."""
        return trials_table(self.rows)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a training step, every metric by its registered name."""
        return steps_table(self.rows)

    @cached_property
    def evals(self) -> pd.DataFrame:
        """One row an evaluation on the select prompts."""
        return evals_table(self.rows)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """The completions that evaluations kept, as they are: text of a model, to be escaped where it is shown."""
        return samples_table(self.rows)

    @property
    def units(self) -> Mapping[str, str]:
        """Unit of every column that has one, by name."""
        tables = (self.samples, self.evals, self.steps, self.trials)
        return {name: unit for t in tables for name, unit in t.attrs["units"].items() if unit}

    def curve(self, trial: int) -> pd.DataFrame:
        """The evaluations of one trial, by step.

        Raises:
            StudyError: there is no such trial; those that there are, are named.
        """
        numbers = [row.number for row in self.rows.trials]
        is_number = isinstance(trial, Integral) and not isinstance(trial, bool)  # numpy's too
        if not is_number or trial not in numbers:
            known = f"{_ranges(numbers)} are there" if numbers else "none is there yet"
            raise StudyError(f"{self.path}: there is no trial {trial!r}; {known}")
        mine = self.evals[self.evals["trial"] == trial]
        return mine.set_index("step").drop(columns=["trial"])

    @property
    def best(self) -> TrialRow | None:
        """The recommended trial; None where none can be recommended."""
        return self._answer.best if isinstance(self._answer, Recommendation) else None

    @cached_property
    def recommendation(self) -> Advice:
        """What to type, when to stop, how sure: the report's own words."""
        answer = self._answer
        if isinstance(answer, NoAnswer):
            changes = tuple(("What to change", line) for line in answer.advice)
            return Advice(answer.reason, changes, is_answer=False)
        facts = answer_facts(self.rows, answer)
        confirmed = confirmed_words(self.rows, answer)
        if confirmed is not None:
            facts = (*facts, ("Fresh seeds and test prompts", confirmed))
        return Advice(headline(self.rows, answer), facts, is_answer=True)

    @cached_property
    def fits(self) -> Fits:
        """Laws, frontier, ranking, importance: some seconds for hundreds of trials, the first time."""
        return fit_study(self.rows, self._answer)

    def report(self) -> ReportPaths:
        """Write report.html, report.md and report.json into the folder, from what is in it now.

        Raises:
            RunError: the folder can't be written to.
        """
        return build_report(self.path)

    def export(  # noqa: PLR0913 - the flags of the command
        self,
        to: str,
        *,
        out: str | Path | None = None,
        trial: int | None = None,
        version: str | None = None,
        framework: str | None = None,
        batch: int | None = None,
        group: int | None = None,
        mean_tokens: float | None = None,
        max_new_tokens: int | None = None,
        force: bool = False,
    ) -> str:
        """Do what ``kltune export`` does, with the flags of it as arguments.

        Returns:
            The text; with ``out`` it is written there too. For csv, parquet and peft the
            folder ``out``, which they need.

        Raises:
            SpecError: an argument, or a setting that the framework can't run.
            StudyError: there is nothing to export.
            RunError: it can't be written.
        """
        request = ExportRequest(
            study_path=self.path,
            to=to,
            trial=trial,
            version=version,
            framework=framework,
            sizes=Sizes(batch, group, mean_tokens, max_new_tokens),
            out=None if out is None else as_path("out", out),
            force=force,
        )
        try:
            found = make_export(request)
        except SpecError as error:
            raise SpecError(_as_arguments(str(error))) from error
        if isinstance(found, NoAnswer):
            raise StudyError(" ".join((found.reason, "Nothing to export.", *found.advice)))
        for warning in found.warnings:
            warnings.warn(_as_arguments(warning), stacklevel=2)
        if found.text is None:
            return str(request.out)
        if request.out is not None:
            put(request.out, found.text, force=force)
        return found.text

    def refresh(self) -> Study:
        """The same folder as it is now."""
        return open_study(self.path)

    def __repr__(self) -> str:
        return f"<kltune.Study {self.name!r} at {str(self.path)!r}: {self._progress}>"

    def _repr_html_(self) -> str:
        """For notebooks; every text is escaped."""
        shown = self.trials[list(_SHOWN)]
        table = shown.to_html(max_rows=_MOST_ROWS, float_format=lambda x: f"{x:.4g}", na_rep="–")
        texts = (self.recommendation.headline, f"{self.path}: {self._progress}")
        paragraphs = "".join(f"<p>{html.escape(visible(text))}</p>" for text in texts)
        return f"<div><h3>{html.escape(visible(self.name))}</h3>{paragraphs}{table}</div>"

    @cached_property
    def _answer(self) -> Answer:
        return recommend(self.rows)

    @property
    def _progress(self) -> str:
        return progress_words(self.rows)


def open_study(path: str | Path) -> Study:
    """Read a study: a finished, running, copied or older one. Nothing is written, nothing is locked.

    Raises:
        SpecError: no path.
        StudyError: the folder is not a study, or a newer kltune wrote it.
    """
    return Study(read_study(as_path("path", path, "the path of a study's folder").expanduser()))


def as_path(name: str, given: object, kind: str = "a path") -> Path:
    """The argument ``name`` as a path.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(given, str | os.PathLike):
        raise SpecError(f"{name}: must be {kind} (got {given!r})")
    return Path(given)  # pyright: ignore[reportUnknownArgumentType]


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as ``0-3, 7``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _as_arguments(text: str) -> str:
    """Flags of the command by their names in Python."""
    return _FLAG.sub(lambda found: found[1].replace("-", "_"), text)

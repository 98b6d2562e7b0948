"""``kltune task test``: a spec in; what proxy and gold say of a few completions, how fast, and what they do wrong, out."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kltune.errors import ExitCode, KltuneError
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.task_answers import answers_of_file, harmless_answers
from kltune.metrics.jsonl import encode
from kltune.report.text import visible
from kltune.rewards.judge import Judge
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, load_spec
from kltune.tasks.calls_checked import ScorerEndedError, ScorerError, ScorerTimeoutError
from kltune.tasks.calls_made import function_scorers
from kltune.tasks.calls_probe import first_try
from kltune.tasks.calls_weighted import WeightedScorer
from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.scorers import FunctionScorer, Scores, detailed
from kltune.trial.words import number

SHOWN_CHARS: Final = 48


@dataclass(frozen=True, slots=True)
class TryRequest:
    """The flags of ``kltune task test``."""

    spec_path: Path
    completions: Path | None = None
    """File with completions; none: harmless texts."""
    count: int = 8
    draw: bool = False
    """Draw the completions from the reference model."""
    overrides: tuple[str, ...] = ()
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """One scorer on all the completions."""

    field: str
    name: str
    values: tuple[float, ...] = ()
    """NaN: could not be scored; empty where it failed as a whole."""
    parts: Mapping[str, Sequence[float]] | None = None
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    """Of the second call: the first also loads what a scorer loads."""
    first_seconds: float = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether it gave nothing, or gold gave no number to some completion."""
        lost = any(math.isnan(value) for value in self.values)
        return not self.values or bool(self.problems) or (lost and self.field != "task.proxy")


def run_task_try(request: TryRequest) -> ExitCode:
    """Score and show; exit code 4 where a scorer failed.

    Raises:
        SpecError: a spec, prompts, functions or completions that can't be used.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    spec = load_spec(request.spec_path, request.overrides)
    check_paths(spec)
    with reserved_stdout(is_reserved=request.as_json) as result:
        samples, scorers, notes = _prepare(spec, request)
        judged = [judge(field, scorer, samples) for field, scorer in scorers.items()]
        if request.as_json:
            result.write(encode(_as_json(samples, judged, notes)) + "\n")
            result.flush()
        else:
            console = Console(file=sys.stdout)
            console.print(shown(samples, judged))
            for note in notes:
                say(note)
    return ExitCode.GATE_FAILED if any(one.is_broken for one in judged) else ExitCode.DONE


def judge(field: str, scorer: Scorer, samples: Sequence[Sample]) -> Judged:
    """Call it twice; what it does wrong is part of the answer.

    A user's function is called in a process of its own before that: one that ends the process shows there.
    """
    try:
        for function in function_scorers(scorer):
            _refuse_endless(function, samples)
        start = time.perf_counter()
        found = detailed(scorer, samples)
        first = time.perf_counter() - start
        start = time.perf_counter()
        detailed(scorer, samples)
    except KltuneError as error:
        return Judged(field, scorer.name, problems=(str(error).removeprefix(f"{field}: "),))
    seconds = time.perf_counter() - start
    return Judged(
        field,
        scorer.name,
        tuple(found.values),
        found.parts or None,
        (*found.problems, *_silent(scorer, found)),
        seconds,
        first,
    )


def _refuse_endless(function: FunctionScorer, samples: Sequence[Sample]) -> None:
    """Whatever else it does wrong is found by the calls that follow."""
    try:
        if function.child is None:
            first_try(function, samples)
    except (ScorerEndedError, ScorerTimeoutError):
        raise
    except ScorerError:
        return


def _silent(scorer: Scorer, found: Scores) -> list[str]:
    """Who of those that score said nothing at all."""
    count = len(found.values)
    said = [
        f"part {name!r} scored none of {count} completions"
        for name, values in found.parts.items()
        if all(map(math.isnan, values))
    ]
    if all(map(math.isnan, found.values)):
        said = [f"scored none of {count} completions"]
    said += [
        f"{one.name} gave no answer that can be read to any question, so that its scores say nothing"
        for one in _scorers_in(scorer)
        if isinstance(asked := getattr(one, "judge", None), Judge)
        and asked.unreadable
        and not asked.read
    ]
    return said


def _scorers_in(scorer: Scorer) -> list[Scorer]:
    if isinstance(scorer, WeightedScorer):
        return [one for part in scorer.parts for one in _scorers_in(part.scorer)]
    return [scorer]


def shown(samples: Sequence[Sample], judged: Sequence[Judged]) -> Group:
    """A table with a line per completion, then the scorers, then what they did wrong."""
    rows = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    rows.add_column("prompt", overflow="fold", ratio=2)
    rows.add_column("completion", overflow="fold", ratio=3)
    columns = [column for one in judged for column in _columns(one)]
    for title, _ in columns:
        rows.add_column(title, justify="right", no_wrap=True)
    for i, sample in enumerate(samples):
        cells = [_score(values, i) for _, values in columns]
        rows.add_row(
            *(Text(text) for text in (_short(sample.prompt.text), _short(sample.text), *cells))
        )
    times = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("scorer", "function", "ms per completion", "first call", "errors"):
        times.add_column(title, justify="left" if title in ("scorer", "function") else "right")
    for one in judged:
        per = 1000 * one.seconds / max(1, len(samples))
        speed = (
            (f"{number(per)}", f"{number(1000 * one.first_seconds)} ms")
            if one.values
            else ("-", "-")
        )
        times.add_row(one.field, Text(visible(one.name)), *speed, str(len(one.problems)))
    problems = [
        Text(f"{one.field}: {visible(problem)}", style="red")
        for one in judged
        for problem in one.problems
    ]
    gap = [Text("")] if problems else []
    return Group(rows, Text(""), times, *gap, *problems)


def _prepare(
    spec: LoadedSpec, request: TryRequest
) -> tuple[list[Sample], dict[str, Scorer], tuple[str, ...]]:
    # Built-in proxies and rewards that are models need torch: not before the spec is sound.
    from kltune.launch.task_scorers import drawn_answers, scorers_of

    found = scorers_of(spec, draws=request.draw)
    splits = found.splits
    if request.draw:
        samples = drawn_answers(found, request.count)
    elif request.completions is not None:
        samples = answers_of_file(request.completions, splits, request.count)
    else:
        samples = harmless_answers(splits, request.count)
    return samples, dict(found.scorers), found.notes


def _columns(one: Judged) -> list[tuple[str, Sequence[float]]]:
    title = one.field.removeprefix("task.").removeprefix("golds.")
    return [(title, one.values), *(one.parts or {}).items()]


def _score(values: Sequence[float], index: int) -> str:
    if not values:
        return "-"
    return "none" if math.isnan(values[index]) else number(values[index])


def _short(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"


def _as_json(
    samples: Sequence[Sample], judged: Sequence[Judged], notes: Sequence[str]
) -> dict[str, Any]:
    completions = [
        {"prompt_id": s.prompt.id, "prompt": s.prompt.text, "completion": s.text} for s in samples
    ]
    scorers = [
        {
            "field": one.field,
            "name": one.name,
            "scores": [None if math.isnan(v) else v for v in one.values],
            "parts": {
                n: [None if math.isnan(v) else v for v in vs] for n, vs in (one.parts or {}).items()
            },
            "ms_per_completion": 1000 * one.seconds / max(1, len(samples)),
            "problems": list(one.problems),
        }
        for one in judged
    ]
    return {"completions": completions, "scorers": scorers, "notes": list(notes)}

"""``confirm --gold`` in, a scorer under the spec's own limits out, tried on texts before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kltune.errors import SpecError
from kltune.metrics.jsonl import read_rows
from kltune.metrics.rows import SAMPLES
from kltune.report.rows import StudyRows
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_checked import ScorerError
from kltune.tasks.calls_child import Child, Origin
from kltune.tasks.calls_made import function_scorers
from kltune.tasks.calls_probe import probe_samples
from kltune.tasks.prompts import column_names
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.registry import Task
from kltune.tasks.sameness import is_same, refuse_same
from kltune.tasks.scorers import CallLimits, FunctionScorer, load_file_scorer, split_reference
from kltune.tasks.thought import split_thought

TRIED: Final = 8
"""Kept completions that a second gold is tried on."""


def second_gold(reference: str | None, task: Task, study: StudyRows) -> FunctionScorer | None:
    """Import a second gold, with the checks that task.gold has; none was asked for: none.

    Its calls may take what the spec allows (``task.timeout``, ``task.isolate``). It is called once, with completions
    that the study kept where there are any: what it raises there is known before the first run.

    Raises:
        SpecError: it can't be used.
    """
    if reference is None:
        return None
    source, name = split_reference(reference)
    path = Path(source).absolute()
    try:
        scorer = load_file_scorer(path, name, reference, limits=_limits(study.spec))
        scorer.check_columns(column_names(task.splits))
        for proxy in function_scorers(task.proxy):
            refuse_same(scorer, proxy)
        if isinstance(task.gold, FunctionScorer) and is_same(scorer.function, task.gold.function):
            raise SpecError(f"{reference} is task.gold itself, which judges anyway")
        if getattr(study.spec.task, "isolate", False):
            scorer = replace(scorer, child=Child(Origin(reference, path, (), "auto")))
        _try_out(scorer, _texts(task.splits.select, study))
    except (SpecError, ScorerError) as error:
        raise SpecError(f"--gold: {error}") from error
    return scorer


def _limits(spec: StudySpec) -> CallLimits:
    # A gold must score everything, so task.errors is not for it.
    return CallLimits(spec.task.timeout) if isinstance(spec.task, TaskSpec) else CallLimits()


def _try_out(scorer: FunctionScorer, samples: Sequence[Sample]) -> None:
    scores = scorer(samples)
    lacking = next((s for s, v in zip(samples, scores, strict=True) if math.isnan(v)), None)
    if lacking is not None:
        raise SpecError(
            f"{scorer.name} gave no score to {lacking.text[:80]!r} (prompt {lacking.prompt.id!r}); a gold must score all"
        )


def _texts(prompts: Sequence[Prompt], study: StudyRows) -> list[Sample]:
    """Completions of the study, the latest of some trial; harmless texts where it kept none."""
    by_id = {prompt.id: prompt for prompt in prompts}
    mark = study.spec.model.answer_after
    found: list[Sample] = []
    for row in study.trials:
        rows = read_rows(row.folder / SAMPLES) if (row.folder / SAMPLES).is_file() else []
        for kept in reversed(rows):
            if kept["prompt_id"] in by_id and len(found) < TRIED:
                thought, answer = split_thought(kept["completion"], mark)
                prompt = by_id[kept["prompt_id"]]
                found.append(Sample(prompt, answer, (), bool(kept["ended"]), thought))
        if found:
            return found
    return probe_samples(prompts)

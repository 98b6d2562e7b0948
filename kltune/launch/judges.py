"""A spec's judges: how often they will be asked, a spec without them, and where their replies are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kltune.spec.judge import JudgeSpec, UnaskedJudge
from kltune.spec.load import LoadedSpec
from kltune.spec.rewards import judge_calls, judge_of
from kltune.spec.scorers import WeightedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_weighted import WeightedScorer
from kltune.trainer.data import TaskData


def folder_of(study_path: Path) -> Path:
    """Where a study keeps what its judges said."""
    return study_path / "artifacts" / "judge"


def keep_judges(data: TaskData, study_path: Path) -> None:
    """From now on, and for what was said before: keep the replies of every judge in the study."""
    for scorer in (data.proxy, data.gold, *data.golds.values()):
        _keep(scorer, folder_of(study_path))


def _keep(scorer: object, folder: Path) -> None:
    if isinstance(scorer, WeightedScorer):
        for part in scorer.parts:
            _keep(part.scorer, folder)
        return
    keep_in = getattr(scorer, "keep_in", None)
    if callable(keep_in):
        keep_in(folder)


def remembers(scorer: object) -> bool:
    """Whether a scorer asks a judge, which asks no question twice."""
    if isinstance(scorer, WeightedScorer):
        return any(remembers(part.scorer) for part in scorer.parts)
    return callable(getattr(scorer, "keep_in", None))


def without_asking(loaded: LoadedSpec) -> LoadedSpec:
    """The same spec with a stand-in for every judge: to measure time without a request."""
    task = loaded.spec.task
    if not isinstance(task, TaskSpec):
        return loaded
    golds = {name: _unasked(gold) for name, gold in task.golds.items()}
    update = {"gold": _unasked(task.gold), "golds": golds, "proxy": _unasked(task.proxy)}
    spec = loaded.spec.model_copy(update={"task": task.model_copy(update=update)})
    return replace(loaded, spec=spec)


def _unasked(reward: Any) -> Any:
    if isinstance(reward, WeightedSpec):
        parts = [p.model_copy(update={"reward": _unasked(p.reward)}) for p in reward.weighted]
        return reward.model_copy(update={"weighted": tuple(parts)})
    judge = judge_of(reward)
    return reward if judge is None else UnaskedJudge(judge=judge.judge, url=judge.url)


def most_calls(spec: StudySpec, proxied: int, judged: int) -> Mapping[str, int]:
    """Requests at most by field of the spec, where the proxy scores ``proxied`` completions and each gold ``judged``.

    Those for the reference before the first trial come on top.
    """
    return {
        field: judge_calls(reward) * (proxied if field.startswith("task.proxy") else judged)
        for field, reward in _asking(spec)
    }


def judge_notes(spec: StudySpec, calls: Mapping[str, int]) -> list[str]:
    """What a person should know of it before the start: sentences."""
    notes: list[str] = []
    for field, reward in _asking(spec):
        judge = judge_of(reward)
        assert judge is not None
        notes.append(
            f"{field} asks {judge.judge} at {judge.url} at most {calls[field]:,} times, and for the reference before "
            f"the first trial; the time above counts none of it{_budget_words(judge)}"
        )
    return notes


def _budget_words(judge: JudgeSpec) -> str:
    budget = judge.budget
    limits = [
        f"{value:,g} {what}"
        for what, value in (
            ("calls", budget.calls),
            ("tokens", budget.tokens),
            ("in money", budget.money),
        )
        if value is not None
    ]
    return f" (budget: {', '.join(limits)})" if limits else " (no budget is set)"


def _asking(spec: StudySpec) -> list[tuple[str, object]]:
    task = spec.task
    if not isinstance(task, TaskSpec):
        return []
    fields: dict[str, object] = {"task.proxy": task.proxy, "task.gold": task.gold}
    fields |= {f"task.golds.{name}": gold for name, gold in task.golds.items()}
    return [
        found
        for field, reward in fields.items()
        for found in _parts(field, reward)
        if judge_of(found[1]) is not None
    ]


def _parts(field: str, reward: object) -> Iterator[tuple[str, object]]:
    if not isinstance(reward, WeightedSpec):
        yield field, reward
        return
    for i, part in enumerate(reward.weighted):
        yield from _parts(f"{field}.weighted.{i}", part.reward)

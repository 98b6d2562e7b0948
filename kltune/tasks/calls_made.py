"""How a spec names what scores in, scorers out: functions ready to call, other rewards still to be made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kltune.errors import RunError, SpecError
from kltune.spec.rewards import (
    RecordedSpec,
    RewardSpec,
    WinRateSpec,
    as_judged,
    columns_of,
    reward_kind,
)
from kltune.spec.scorers import FunctionSpec, Gold, PartReward, Proxy, WeightedSpec, function_of
from kltune.spec.task import ProxySpec, TaskSpec
from kltune.spec.verifiers import JsonVerifierSpec
from kltune.tasks.calls_child import Child, Origin
from kltune.tasks.calls_weighted import Part, WeightedScorer
from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.scorers import (
    CallLimits,
    FunctionScorer,
    load_file_scorer,
    load_scorer,
    split_reference,
)

Resolve = Callable[[str], Path]
"""Where a relative path of the spec lies, whether or not anything is there."""

MakeReward = Callable[[str, RewardSpec], Scorer]
"""From the field of the spec and a reward that is no function; may load models."""


@dataclass(frozen=True, slots=True)
class PendingScorer:
    """A reward that is no function, not yet made: models and files of it are not loaded to read a spec."""

    field: str
    """Of the spec: ``task.gold``, ``task.proxy.weighted.1``, ..."""
    spec: RewardSpec
    fingerprint: str = ""
    """SHA-256 of its section and of the files that it names."""

    @property
    def name(self) -> str:
        """How reports call it until it is made."""
        return (reward_kind(self.spec) or "<reward>").strip("<>")

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Refuse: there is nothing to score with yet."""
        raise RunError(f"{self.field}: not ready to score {len(samples)} completions")


@dataclass(frozen=True, slots=True)
class ScorerMaker:
    """Makes the scorers of a task of the user."""

    task: TaskSpec
    columns: Sequence[str]
    """Of the prompts."""
    resolve: Resolve

    def of(self, field: str, reward: Gold | Proxy | PartReward, error_share: float = 0.0) -> Scorer:
        """The scorer of ``task.<field>``; ``error_share``: of the completions of one call, that are passed over.

        Raises:
            SpecError: no such function, or one that the prompts have no columns for; the field is named.
            EnvironmentMissingError: the user's code imports a package that is not installed.
        """
        if isinstance(reward, WeightedSpec):
            parts = [
                Part(p.called, p.weight, self.of(f"{field}.weighted.{i}", p.reward, error_share))
                for i, p in enumerate(reward.weighted)
            ]
            return WeightedScorer(tuple(parts))
        try:
            if isinstance(reward, str | FunctionSpec):
                return self._function(function_of(reward), error_share)
            assert not isinstance(reward, ProxySpec)
            missing = [name for name in columns_of(reward) if name not in self.columns]
            if missing:
                raise SpecError(
                    f"needs the column(s) {', '.join(missing)}, which the prompts lack; columns there: "
                    f"{', '.join(self.columns) or 'none'}"
                )
        except SpecError as error:
            raise SpecError(f"task.{field}: {error}") from error
        return PendingScorer(f"task.{field}", reward, self._fingerprint(reward))

    def _fingerprint(self, reward: RewardSpec) -> str:
        section = as_judged(reward.model_dump(mode="json"))
        found = hashlib.sha256(json.dumps(section, sort_keys=True).encode())
        for text in _files_of(reward):
            path = self.resolve(text)
            if path.is_file():
                found.update(hashlib.sha256(path.read_bytes()).digest())
        return found.hexdigest()

    def _function(self, spec: FunctionSpec, error_share: float) -> FunctionScorer:
        reference = spec.function
        source, name = split_reference(reference)
        limits = CallLimits(self.task.timeout, error_share)
        if source.endswith(".py"):
            path, folders = self.resolve(source), []
            scorer = load_file_scorer(path, name, reference, spec.style, limits)
        else:
            path, folders = None, _module_folders(source, self.resolve)
            scorer = load_scorer(reference, folders, spec.style, limits)
        scorer.check_columns(self.columns)
        origin = Origin(reference, path, tuple(folders), spec.style)
        child = Child(origin) if self.task.isolate else None
        return replace(scorer, origin=origin, child=child)


def _files_of(reward: RewardSpec) -> tuple[str, ...]:
    match reward:
        case RecordedSpec():
            return (reward.recorded,)
        case WinRateSpec():
            return (reward.win_rate.reference,)
        case JsonVerifierSpec(schema_file=str(path)):
            return (path,)
        case _:
            return ()


def made(scorer: Scorer, make: MakeReward) -> Scorer:
    """The scorer itself, or what ``make`` makes of a pending one; parts of a sum each for themselves.

    Raises:
        SpecError: one can't be made.
    """
    if isinstance(scorer, PendingScorer):
        return make(scorer.field, scorer.spec)
    if isinstance(scorer, WeightedScorer):
        parts = (replace(part, scorer=made(part.scorer, make)) for part in scorer.parts)
        return WeightedScorer(tuple(parts))
    return scorer


def function_scorers(scorer: object) -> tuple[FunctionScorer, ...]:
    """Every user's function that ``scorer`` calls: itself, or its parts."""
    if isinstance(scorer, WeightedScorer):
        return tuple(one for part in scorer.parts for one in function_scorers(part.scorer))
    return (scorer,) if isinstance(scorer, FunctionScorer) else ()


def _module_folders(module: str, resolve: Resolve) -> list[Path]:
    """Where the module may lie beside the installed ones: wherever ``resolve`` would find its top."""
    top = module.split(".")[0]
    return list(dict.fromkeys([resolve(top).parent, resolve(f"{top}.py").parent]))

"""The spec's task section in, a whole task out: prompts in splits, gold, proxy and digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from kltune.errors import SpecError
from kltune.spec.kinship import kinship, leaves, same_problem
from kltune.spec.prompts import PromptsSpec
from kltune.spec.task import BuiltinTask, LearnedProxySpec, ProxySpec, TaskSpec
from kltune.tasks.calls_made import MakeReward, Resolve, ScorerMaker, function_scorers, made
from kltune.tasks.everyday import task as everyday
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.kitchen.gold import KitchenGold
from kltune.tasks.prompts import column_names, digest_prompts, load_source
from kltune.tasks.protocol import Scorer, Splits
from kltune.tasks.sameness import refuse_same

BUILTIN_TASKS: Final = (kitchen.NAME, everyday.NAME)


@dataclass(frozen=True, slots=True)
class ShippedProxy:
    """A reward model that ships with a built-in task, not yet loaded."""

    folder: Path


@dataclass(frozen=True, slots=True)
class Task:
    """All that a study learns and judges by."""

    name: str
    """``kitchen``, ``everyday``, or the stem of the user's prompts file."""
    splits: Splits
    gold: Scorer
    proxy: Scorer | LearnedProxySpec | ShippedProxy
    """Ready to score; or still to be fitted; or still to be loaded."""
    digests: Mapping[str, str]
    """SHA-256 of the prompts, by split name."""
    golds: Mapping[str, Scorer] = field(default_factory=dict[str, Scorer])
    """Further judgements, by the names that the spec gives them."""
    source: str = ""
    """Where the prompts come from, as the spec names it: a file, a data set; empty: built in."""


def load_task(spec: BuiltinTask | TaskSpec, resolve: Resolve) -> Task:
    """Read prompts and scorers; no model is loaded, and rewards that are no functions are still to be made.

    Raises:
        SpecError: unknown built-in or gold of it, bad prompts or scorers, a gold that is the proxy.
        EnvironmentMissingError: a package that the task's scorers need is not installed.
    """
    return _builtin(spec) if isinstance(spec, BuiltinTask) else _of_user(spec, resolve)


def _builtin(spec: BuiltinTask) -> Task:
    learned = None if spec.proxy is None else spec.proxy.learned
    match spec.builtin:
        case kitchen.NAME:
            proxy = learned or ShippedProxy(kitchen.REWARD)
            golds = _shipped_golds(kitchen.NAME, spec.golds, kitchen.GOLDS)
            return _task(kitchen.NAME, kitchen.splits(), KitchenGold(), proxy, golds)
        case everyday.NAME:
            golds = _shipped_golds(everyday.NAME, spec.golds, everyday.GOLDS)
            proxy = learned or everyday.DEFAULT_PROXY
            return _task(everyday.NAME, everyday.splits(), everyday.gold(), proxy, golds)
        case unknown:
            raise SpecError(
                f"task: there is no built-in task {unknown!r}; known: {', '.join(BUILTIN_TASKS)}; "
                "a task of your own is {prompts:, proxy:, gold:}"
            )


def _shipped_golds(
    task: str, names: Sequence[str], shipped: Mapping[str, Scorer]
) -> Mapping[str, Scorer]:
    for name in names:
        if name not in shipped:
            there = f"it ships {', '.join(shipped)}" if shipped else "it ships none"
            raise SpecError(f"task.golds: {task} has no further gold {name!r}; {there}")
    return {name: shipped[name] for name in names}


def _of_user(spec: TaskSpec, resolve: Resolve) -> Task:
    prompts = _prompts(spec)
    splits = load_source(prompts, spec.splits, resolve)
    name, source = PurePosixPath(prompts.source).stem, prompts.full_source
    scorers = ScorerMaker(spec, column_names(splits), resolve)
    gold = scorers.of("gold", spec.gold)
    golds = {name: scorers.of(f"golds.{name}", given) for name, given in spec.golds.items()}
    if isinstance(spec.proxy, ProxySpec):
        return replace(_task(name, splits, gold, spec.proxy.learned, golds), source=source)
    errors = spec.errors.share if spec.errors.action == "skip" else 0.0
    proxy = scorers.of("proxy", spec.proxy, errors)
    for field_, judge in {
        "task.gold": gold,
        **{f"task.golds.{n}": g for n, g in golds.items()},
    }.items():
        for one in function_scorers(judge):
            for other in function_scorers(proxy):
                refuse_same(one, other, field=field_)
    _refuse_kin(spec, resolve)
    return replace(_task(name, splits, gold, proxy, golds), source=source)


def _refuse_kin(spec: TaskSpec, resolve: Resolve) -> None:
    """Refuse one model, judge or file of scores as proxy and as gold."""

    def spelled(text: str) -> str:
        path = resolve(text)
        return str(path.resolve()) if path.exists() else text

    golds = {"task.gold": spec.gold, **{f"task.golds.{n}": g for n, g in spec.golds.items()}}
    for field_, proxy in leaves("task.proxy", spec.proxy):
        for name, given in golds.items():
            for other, gold in leaves(name, given):
                if kinship(proxy, gold, spelled) == "same":
                    raise SpecError(same_problem(field_, other))


def _prompts(spec: TaskSpec) -> PromptsSpec:
    given = spec.prompts
    return given if isinstance(given, PromptsSpec) else PromptsSpec(path=given)


def with_rewards(task: Task, make: MakeReward) -> Task:
    """The same task, with every reward made that is still pending.

    Raises:
        SpecError: one can't be made.
        EnvironmentMissingError: this machine lacks what one needs.
    """
    golds = {name: made(gold, make) for name, gold in task.golds.items()}
    proxy = task.proxy
    if not isinstance(proxy, LearnedProxySpec | ShippedProxy):
        proxy = made(proxy, make)
    return replace(task, gold=made(task.gold, make), golds=golds, proxy=proxy)


def _task(
    name: str,
    splits: Splits,
    gold: Scorer,
    proxy: Scorer | LearnedProxySpec | ShippedProxy,
    golds: Mapping[str, Scorer],
) -> Task:
    digests = {
        "train": digest_prompts(splits.train),
        "select": digest_prompts(splits.select),
        "test": digest_prompts(splits.test),
    }
    return Task(name, splits, gold, proxy, digests, golds)

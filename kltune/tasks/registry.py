"""The spec's task section in, a whole task out: prompts in splits, gold, proxy and digests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from kltune.errors import SpecError
from kltune.spec.prompts import PromptsSpec
from kltune.spec.task import BuiltinTask, LearnedProxySpec, TaskSpec
from kltune.tasks.everyday import task as everyday
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.kitchen.gold import KitchenGold
from kltune.tasks.prompts import column_names, digest_prompts, load_source
from kltune.tasks.protocol import Scorer, Splits
from kltune.tasks.sameness import refuse_same
from kltune.tasks.scorers import FunctionScorer, load_file_scorer, load_scorer, split_reference

BUILTIN_TASKS: Final = (kitchen.NAME, everyday.NAME)

Resolve = Callable[[str], Path]
"""Where a relative path of the spec lies, whether or not anything is there."""


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


def load_task(spec: BuiltinTask | TaskSpec, resolve: Resolve) -> Task:
    """Read prompts and scorers; no model is loaded.

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
    prompts = PromptsSpec(path=spec.prompts) if isinstance(spec.prompts, str) else spec.prompts
    splits = load_source(prompts, spec.splits, resolve)
    name = PurePosixPath(prompts.source).stem
    columns = column_names(splits)
    gold = _scorer("gold", spec.gold, columns, resolve)
    golds = {
        name: _scorer(f"golds.{name}", function, columns, resolve)
        for name, function in spec.golds.items()
    }
    if not isinstance(spec.proxy, str):
        return _task(name, splits, gold, spec.proxy.learned, golds)
    proxy = _scorer("proxy", spec.proxy, columns, resolve)
    refuse_same(gold, proxy)
    for name, further in golds.items():
        refuse_same(further, proxy, field=f"task.golds.{name}")
    return _task(name, splits, gold, proxy, golds)


def _scorer(field: str, reference: str, columns: Sequence[str], resolve: Resolve) -> FunctionScorer:
    try:
        source, function_name = split_reference(reference)
        scorer = (
            load_file_scorer(resolve(source), function_name, reference)
            if source.endswith(".py")
            else load_scorer(reference, _module_folders(source, resolve))
        )
        scorer.check_columns(columns)
    except SpecError as error:
        raise SpecError(f"task.{field}: {error}") from error
    return scorer


def _module_folders(module: str, resolve: Resolve) -> list[Path]:
    """Where the module may lie beside the installed ones: wherever ``resolve`` would find its top."""
    top = module.split(".")[0]
    return list(dict.fromkeys([resolve(top).parent, resolve(f"{top}.py").parent]))


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

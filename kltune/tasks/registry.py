"""The spec's task section in, a whole task out: prompts in splits, gold, proxy and digests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kltune.errors import SpecError
from kltune.spec.task import BuiltinTask, LearnedProxySpec, TaskSpec
from kltune.tasks.everyday import task as everyday
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.kitchen.gold import KitchenGold
from kltune.tasks.prompts import column_names, digest_prompts, load_prompts
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


def load_task(spec: BuiltinTask | TaskSpec, resolve: Resolve) -> Task:
    """Read prompts and scorers; no model is loaded.

    Raises:
        SpecError: unknown built-in, bad prompts or scorers, gold and proxy the same function.
        EnvironmentMissingError: a package that the task's scorers need is not installed.
    """
    return _builtin(spec) if isinstance(spec, BuiltinTask) else _of_user(spec, resolve)


def _builtin(spec: BuiltinTask) -> Task:
    learned = None if spec.proxy is None else spec.proxy.learned
    match spec.builtin:
        case kitchen.NAME:
            proxy = learned or ShippedProxy(kitchen.REWARD)
            return _task(kitchen.NAME, kitchen.splits(), KitchenGold(), proxy)
        case everyday.NAME:
            return _task(
                everyday.NAME, everyday.splits(), everyday.gold(), learned or everyday.DEFAULT_PROXY
            )
        case unknown:
            raise SpecError(
                f"task: there is no built-in task {unknown!r}; known: {', '.join(BUILTIN_TASKS)}; "
                "a task of your own is {prompts:, proxy:, gold:}"
            )


def _of_user(spec: TaskSpec, resolve: Resolve) -> Task:
    path = resolve(spec.prompts)
    splits = load_prompts(path, spec.splits)
    columns = column_names(splits)
    gold = _scorer("gold", spec.gold, columns, resolve)
    if not isinstance(spec.proxy, str):
        return _task(path.stem, splits, gold, spec.proxy.learned)
    proxy = _scorer("proxy", spec.proxy, columns, resolve)
    refuse_same(gold, proxy)
    return _task(path.stem, splits, gold, proxy)


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
    name: str, splits: Splits, gold: Scorer, proxy: Scorer | LearnedProxySpec | ShippedProxy
) -> Task:
    digests = {
        "train": digest_prompts(splits.train),
        "select": digest_prompts(splits.select),
        "test": digest_prompts(splits.test),
    }
    return Task(name, splits, gold, proxy, digests)

"""Samples in, a user's function called by its own convention, what it returned out.

TRL's: once a batch, ``f(prompts, completions, **columns) -> list``. verl's: once a completion,
``compute_score(data_source, solution_str, ground_truth, extra_info) -> number or {"score": number}``,
or once a batch with the same names in the plural. Any of them may be async.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from kltune.errors import SpecError
from kltune.tasks.calls_limits import OverTimeError
from kltune.tasks.protocol import Sample

UserFunction = Callable[..., Any]

BATCH: Final = ("prompts", "completions")
_BY_NAME_ONLY: Final = ("completion_ids", "trainer_state", "log_extra", "log_metric")
"""Given to a function that names them, and not to one with ``**columns`` alone: a scorer judges text."""
_VERL: Final = ("data_source", "solution_str", "ground_truth", "extra_info")
_VERL_BATCH: Final = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
AT_ONCE: Final = 16
"""Calls of an async function in verl's convention that run together."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a function in TRL's convention may ask of the trainer.

    The step is always 0: a reward that changed with time would be another one at each step and in each trial.
    """

    global_step: int = 0
    max_steps: int = 0
    epoch: float = 0.0
    num_train_epochs: int = 0


@dataclass(frozen=True, slots=True)
class Calling:
    """How a function is called."""

    style: Literal["trl", "verl", "verl-batch"]
    accepts: frozenset[str] | None
    """Argument names that it takes; none: any (it has ``**kwargs``)."""
    requires: frozenset[str]
    """Argument names without a default."""
    names: frozenset[str]
    """Argument names that stand in its signature."""

    def missing(self, columns: Sequence[str]) -> list[str]:
        """Columns that it can't do without and that are not there."""
        there = {*columns, *BATCH, *_BY_NAME_ONLY, *_VERL, *_VERL_BATCH}
        missing = sorted(self.requires - there)
        truth = "ground_truth" if self.style == "verl" else "ground_truths"
        has_truth = "ground_truth" in columns or "reward_model" in columns
        if self.style != "trl" and truth in self.requires and not has_truth:
            missing.append("ground_truth")
        return missing


def not_logged(*_values: object, **_named: object) -> None:
    """What a function gets as TRL's ``log_extra`` and ``log_metric``: it may call them, nothing is kept."""


def lacking_words(missing: Sequence[str], columns: Sequence[str]) -> str:
    """What a function needs and does not get, as the end of a message."""
    return (
        f"needs the column(s) {', '.join(missing)}, which the prompts lack; "
        f"columns there: {', '.join(columns) or 'none'}{near_words(missing, columns)}"
    )


def near_words(names: Sequence[str], columns: Sequence[str]) -> str:
    """The known argument or column that a misspelt one is nearest to, as the end of a message; empty: none."""
    known = [*BATCH, *_BY_NAME_ONLY, *_VERL, *_VERL_BATCH, *columns]
    for name in names:
        near = difflib.get_close_matches(name, known, 1, 0.75)
        if near:
            return f"; did you mean {near[0]!r} by {name!r}?"
    return ""


def calling_of(
    name: str, function: UserFunction, style: Literal["auto", "trl", "verl"] = "auto"
) -> Calling:
    """See how ``function`` wants to be called, by the names of its arguments.

    Raises:
        SpecError: it takes an argument by position only, or takes no completions.
    """
    accepts: set[str] = set()
    requires: set[str] = set()
    takes_any = False
    for parameter in _parameters(name, function):
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise SpecError(
                f"{name}: argument {parameter.name!r} is position-only; scorers are called by name"
            )
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            accepts.add(parameter.name)
            if parameter.default is parameter.empty:
                requires.add(parameter.name)
    found: Literal["trl", "verl", "verl-batch"] = "trl"
    if style != "trl" and "solution_str" in accepts:
        found = "verl"
    elif style != "trl" and "solution_strs" in accepts:
        found = "verl-batch"
    listed = ", ".join(sorted(accepts)) or "none"
    if style == "verl" and found == "trl":
        raise SpecError(
            f"{name}: takes no argument 'solution_str' (it takes {listed}); expected "
            "compute_score(data_source, solution_str, ground_truth, extra_info) -> a number"
        )
    if found == "trl" and not takes_any and "completions" not in accepts:
        raise SpecError(
            f"{name}: takes no argument 'completions' (it takes {listed}); "
            f"expected f(prompts, completions, **columns) -> list of numbers{near_words(sorted(accepts), ())}"
        )
    any_name = None if takes_any else frozenset(accepts)
    return Calling(found, any_name, frozenset(requires), frozenset(accepts))


def call(
    function: UserFunction, calling: Calling, samples: Sequence[Sample], limit_s: float
) -> object:
    """Whatever the function says of ``samples``, not yet checked; a list with an entry for each in verl's convention.

    ``limit_s``: of an async function; a plain one is ended from outside.

    Raises:
        OverTimeError: an async function took longer.
    """
    if calling.style == "verl":
        return _each(function, [_verl_arguments(calling, sample) for sample in samples], limit_s)
    if calling.style == "verl-batch":
        each = [_verl_values(sample) for sample in samples]
        plural = dict(zip(_VERL_BATCH, _VERL, strict=True))
        arguments = {
            name: [values[one] for values in each]
            for name, one in plural.items()
            if calling.accepts is None or name in calling.accepts
        }
        return _scores_of(_awaited(function(**arguments), limit_s))
    return _awaited(function(**_trl_arguments(calling, samples)), limit_s)


def _trl_arguments(calling: Calling, samples: Sequence[Sample]) -> dict[str, Any]:
    columns = {name: None for sample in samples for name in sample.prompt.columns}
    arguments: dict[str, Any] = {
        name: [sample.prompt.columns.get(name) for sample in samples] for name in columns
    }
    if any(sample.prompt.messages for sample in samples):  # conversations, as TRL gives them
        arguments["prompts"] = [_turns(sample) for sample in samples]
        arguments["completions"] = [
            [{"role": "assistant", "content": sample.text}] for sample in samples
        ]
    else:
        arguments["prompts"] = [sample.prompt.text for sample in samples]
        arguments["completions"] = [sample.text for sample in samples]
    if calling.accepts is not None:
        arguments = {name: v for name, v in arguments.items() if name in calling.accepts}
    if "completion_ids" in calling.names - arguments.keys():
        arguments["completion_ids"] = [list(sample.token_ids) for sample in samples]
    if "trainer_state" in calling.names - arguments.keys():
        arguments["trainer_state"] = TrainerState()
    for name in calling.names.intersection(("log_extra", "log_metric")) - arguments.keys():
        arguments[name] = not_logged
    return arguments


def _turns(sample: Sample) -> list[dict[str, Any]]:
    turns = sample.prompt.messages or ({"role": "user", "content": sample.prompt.text},)
    return [dict(turn) for turn in turns]


def _verl_values(sample: Sample) -> dict[str, Any]:
    columns = sample.prompt.columns
    judged: object = columns.get("reward_model")
    truth = columns.get("ground_truth")
    if truth is None and isinstance(judged, Mapping):  # verl's own files nest it
        truth = cast("Mapping[str, object]", judged).get("ground_truth")
    extra: object = columns.get("extra_info")
    return {
        "data_source": columns.get("data_source", ""),
        "solution_str": sample.text,
        "ground_truth": truth,
        "extra_info": {} if extra is None else extra,
    }


def _verl_arguments(calling: Calling, sample: Sample) -> dict[str, Any]:
    columns = sample.prompt.columns
    further = {name: columns[name] for name in calling.names if name in columns}
    values = {**further, **_verl_values(sample)}
    return {k: v for k, v in values.items() if calling.accepts is None or k in calling.accepts}


def _each(
    function: UserFunction, arguments: Sequence[Mapping[str, Any]], limit_s: float
) -> list[object]:
    results = [function(**one) for one in arguments]
    if any(inspect.isawaitable(result) for result in results):
        results = _run(_gathered(cast("list[Awaitable[object]]", results)), limit_s)
    return _scores_of(results)


def _scores_of(results: object) -> Any:
    """Take the number where a function returns more, as verl lets it: ``{"score": ..., ...}``."""
    if not isinstance(results, list | tuple):
        return results
    return [
        cast("dict[str, object]", result)["score"]
        if isinstance(result, dict) and "score" in result
        else result
        for result in cast("Sequence[object]", results)
    ]


async def _gathered(results: Sequence[Awaitable[object]]) -> list[object]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(result: Awaitable[object]) -> object:
        async with room:
            return await result

    return list(await asyncio.gather(*(one(result) for result in results)))


def _awaited(result: Any, limit_s: float) -> object:
    return _run(_of(result), limit_s) if inspect.isawaitable(result) else result


async def _of(result: Awaitable[object]) -> object:
    return await result


def _run(work: Coroutine[Any, Any, Any], limit_s: float) -> Any:
    async def limited() -> Any:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise OverTimeError from None
            raise

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # none runs here: the usual case
        return asyncio.run(limited())
    with ThreadPoolExecutor(1) as other:  # a notebook has a loop of its own
        return other.submit(asyncio.run, limited()).result()


def _parameters(name: str, function: UserFunction) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        raise SpecError(
            f"{name}: its arguments can't be read; wrap it in a Python function "
            "f(prompts, completions, **columns)"
        ) from None

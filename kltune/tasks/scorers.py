"""A reference to a user's function in, a scorer out that refuses whatever is not a number or None per completion."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Final, cast

from kltune.errors import KltuneError, RunError, SpecError
from kltune.tasks.modules import import_file, import_name
from kltune.tasks.protocol import Sample

UserFunction = Callable[..., Any]
"""TRL's reward signature: ``f(prompts: list[str], completions: list[str], **columns: list) -> list[float]``."""

_BATCH: Final = ("prompts", "completions")
_SHOWN_CHARS: Final = 60


class ScorerError(RunError):
    """A scorer raised, or did not return one finite number or None per completion."""


class ScorerRaisedError(ScorerError):
    """The user's function itself raised: nothing is known of what it would return."""


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """A user's function as a ``protocol.Scorer``.

    All arguments go by name. A function without ``**kwargs`` gets only the columns it names.
    """

    name: str
    function: UserFunction
    accepts: frozenset[str] | None
    """Argument names that the function takes; none: any (it has ``**kwargs``)."""
    requires: frozenset[str]
    """Argument names without a default."""

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score ``samples`` in order, NaN for what can't be scored; an empty batch never reaches the function.

        Raises:
            ScorerRaisedError: the function raised; where is said.
            ScorerError: its result is not one number or None per sample.
        """
        if not samples:
            return []
        columns = {name: None for sample in samples for name in sample.prompt.columns}
        arguments: dict[str, list[Any]] = {
            name: [sample.prompt.columns.get(name) for sample in samples] for name in columns
        }
        arguments["prompts"] = [sample.prompt.text for sample in samples]
        arguments["completions"] = [sample.text for sample in samples]
        if self.accepts is not None:
            arguments = {name: values for name, values in arguments.items() if name in self.accepts}
        try:
            result = self.function(**arguments)
        except KltuneError:
            raise
        except (Exception, SystemExit) as error:
            # A user's function may raise anything; here is the one place that knows whose fault it is.
            raise ScorerRaisedError(
                f"scorer {self.name} raised {type(error).__name__}: {error}{_where(error, self.function)}"
            ) from error
        return _checked(result, samples, self.name)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse a function that needs a column which the prompts don't have.

        Raises:
            SpecError: the missing columns and the ones there are.
        """
        missing = sorted(self.requires - {*columns, *_BATCH})
        if missing:
            raise SpecError(
                f"scorer {self.name} needs the column(s) {', '.join(missing)}, which the prompts lack; "
                f"columns there: {', '.join(columns) or 'none'}"
            )


def load_scorer(reference: str, base_folders: Sequence[Path]) -> FunctionScorer:
    """Import the function behind ``package.module:function`` or ``file.py:function``.

    A relative file is looked for in ``base_folders`` in order; a module on ``sys.path``, then there.

    Raises:
        SpecError: no such file, module or function, or one that can't be called as a scorer.
        EnvironmentMissingError: the user's code imports a package that is not installed.
    """
    source, function_name = split_reference(reference)
    if not source.endswith(".py"):
        return _from_module(import_name(source, base_folders, reference), function_name, reference)
    is_absolute = Path(source).is_absolute()
    candidates = [Path(source)] if is_absolute else [folder / source for folder in base_folders]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        looked = ", ".join(map(str, candidates)) or "nowhere: no folders were given"
        raise SpecError(f"{reference}: no such file (looked at {looked})")
    return load_file_scorer(found, function_name, reference)


def load_file_scorer(path: Path, function_name: str, reference: str) -> FunctionScorer:
    """Import ``function_name`` from the file ``path``; ``reference`` is how messages call it.

    Raises:
        SpecError: as ``load_scorer``.
        EnvironmentMissingError: as ``load_scorer``.
    """
    return _from_module(import_file(path, reference), function_name, reference)


def split_reference(reference: str) -> tuple[str, str]:
    """Split ``source:function`` at the last colon.

    Raises:
        SpecError: not of this form.
    """
    source, _, function_name = reference.rpartition(":")
    if not source or not function_name.isidentifier():
        raise SpecError(f"{reference!r} must look like package.module:function or file.py:function")
    return source, function_name


def function_scorer(name: str, function: UserFunction) -> FunctionScorer:
    """Wrap ``function``, after checking that it can be called by name with prompts and completions.

    Raises:
        SpecError: it is async, takes an argument by position only, or takes no completions.
    """
    if inspect.iscoroutinefunction(function):
        raise SpecError(f"{name}: is async; a scorer must be a plain function")
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
    if not takes_any and "completions" not in accepts:
        raise SpecError(
            f"{name}: takes no argument 'completions' (it takes {', '.join(sorted(accepts)) or 'none'}); "
            "expected f(prompts, completions, **columns) -> list of numbers"
        )
    return FunctionScorer(
        name, function, None if takes_any else frozenset(accepts), frozenset(requires)
    )


def _from_module(module: object, function_name: str, reference: str) -> FunctionScorer:
    function = getattr(module, function_name, None)
    if callable(function):
        return function_scorer(reference, function)
    if function is not None:
        raise SpecError(
            f"{reference}: {function_name} is a {type(function).__name__}, not a function"
        )
    there = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
    ]
    raise SpecError(
        f"{reference}: there is no function {function_name!r}; functions there: "
        f"{', '.join(sorted(there)) or 'none'}"
    )


def _parameters(name: str, function: UserFunction) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        raise SpecError(
            f"{name}: its arguments can't be read; wrap it in a Python function "
            "f(prompts, completions, **columns)"
        ) from None


def _checked(result: object, samples: Sequence[Sample], name: str) -> list[float]:
    expected = (
        f"expected a list of {len(samples)} finite numbers, one per completion "
        "(None for one that can't be scored)"
    )
    # numpy arrays and tensors, without importing either
    values: object = result.tolist() if hasattr(result, "tolist") else result  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(values, list | tuple):
        raise ScorerError(f"scorer {name} returned {_described(result)}; {expected}")
    items = cast("Sequence[object]", values)
    if len(items) != len(samples):
        raise ScorerError(
            f"scorer {name} returned {len(items)} score(s) for {len(samples)} completion(s); {expected}"
        )
    scores: list[float] = []
    for index, item in enumerate(items):
        score = math.nan if item is None else _number(item)  # None and NaN: could not be scored
        if score is None or math.isinf(score):
            raise ScorerError(
                f"scorer {name} returned {_described(item)} for completion {index} of {len(items)} "
                f"({samples[index].text[:_SHOWN_CHARS]!r}); {expected}"
            )
        scores.append(score)
    return scores


def _where(error: BaseException, function: UserFunction) -> str:
    """File and line where it was raised: the user's own file if it is among those gone through, else the innermost."""
    # The first frame is the call above; a call that does not fit the function has no other.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if not frames:
        return ""
    last = (own or frames)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"


def _number(item: object) -> float | None:
    """The float that ``item`` stands for: Python's and numpy's numbers, and 0-d arrays; else None."""
    if not isinstance(item, Real) and getattr(item, "shape", None) == ():
        item = cast("Any", item).item()
    if not isinstance(item, Real):
        return None
    try:
        return float(item)
    except OverflowError:
        return math.inf


def _described(value: object) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"a {type(value).__name__} ({repr(value)[:_SHOWN_CHARS]})"

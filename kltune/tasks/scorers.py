"""A reference to a user's function in, a scorer out that refuses whatever is not a number or None per completion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from kltune.errors import KltuneError, SpecError
from kltune.tasks.calls import Calling, UserFunction, call, calling_of, lacking_words
from kltune.tasks.calls_blame import find_blamed
from kltune.tasks.calls_checked import (
    ScorerEndedError,
    ScorerError,
    ScorerRaisedError,
    ScorerTimeoutError,
    checked_scores,
    of_sample,
    said,
    where_raised,
)
from kltune.tasks.calls_child import Child, ChildDiedError, Origin
from kltune.tasks.calls_exit import ProcessEndError, kept_alive
from kltune.tasks.calls_limits import OverTimeError, within
from kltune.tasks.modules import import_file, import_name
from kltune.tasks.protocol import Sample, Scorer

Style = Literal["auto", "trl", "verl"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a scorer says of a batch, beside the numbers themselves."""

    values: list[float]
    """One per sample, NaN for what can't be scored."""
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """Of a weighted sum: what each part gave, by its name, before its weight."""
    problems: tuple[str, ...] = ()
    """Completions that count as unscored since the function failed on them, one sentence each."""


@runtime_checkable
class DetailedScorer(Protocol):
    """A scorer that can say more than its numbers."""

    def detail(self, samples: Sequence[Sample]) -> Scores:
        """Score ``samples``."""
        ...


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What a call of a user's function may take and do."""

    seconds: float = 600.0
    error_share: float = 0.0
    """Share of one call's completions that may fail and count as unscored, at least one of them; 0: none may."""

    def most_errors(self, count: int) -> int:
        """Of ``count`` completions."""
        return max(1, int(self.error_share * count)) if self.error_share else 0


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """A user's function as a ``protocol.Scorer``.

    All arguments go by name. A function without ``**kwargs`` gets only the columns it names.
    """

    name: str
    function: UserFunction
    calling: Calling
    limits: CallLimits = CallLimits()
    child: Child | None = None
    """Where it is called; none: here."""
    origin: Origin | None = None
    """Where another process finds the function; none: it can't."""

    @property
    def accepts(self) -> frozenset[str] | None:
        """Argument names that the function takes; none: any (it has ``**kwargs``)."""
        return self.calling.accepts

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score ``samples`` in order, NaN for what can't be scored; an empty batch never reaches the function.

        Raises:
            ScorerRaisedError: the function raised; where, and on what, is said.
            ScorerTimeoutError: it took too long, or its child process died.
            ScorerError: its result is not one number or None per sample.
        """
        return self.detail(samples).values

    def detail(self, samples: Sequence[Sample]) -> Scores:
        """Score ``samples`` and list those on which the function failed.

        Raises:
            ScorerError: as for a plain call.
        """
        if not samples:
            return Scores([])
        try:
            return Scores(self.call_once(samples))
        except ScorerTimeoutError:
            raise
        except ScorerError as error:
            most = self.limits.most_errors(len(samples))
            if most == 0 and not isinstance(error, ScorerRaisedError):
                raise  # it says on which completion
            blamed = find_blamed(self.call_once, samples, error, most)
            if not blamed or len(blamed) > most:
                raise _with_blamed(error, samples, blamed, most) from error.__cause__
        rest = [sample for i, sample in enumerate(samples) if i not in blamed]
        scores = iter(self.call_once(rest) if rest else [])
        problems = tuple(f"{of_sample(samples[i])}: {problem}" for i, problem in blamed.items())
        values = [math.nan if i in blamed else next(scores) for i in range(len(samples))]
        return Scores(values, problems=problems)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse a function that needs a column which the prompts don't have.

        Raises:
            SpecError: the missing columns and the ones there are.
        """
        missing = self.calling.missing(columns)
        if missing:
            raise SpecError(f"scorer {self.name} {lacking_words(missing, columns)}")

    def call_here(self, samples: Sequence[Sample], limit_s: float) -> list[float]:
        """One call in this process, whatever ``child`` says.

        Raises:
            ScorerError: as for a plain call.
        """
        try:
            with kept_alive():
                result = within(
                    limit_s, lambda: call(self.function, self.calling, samples, limit_s)
                )
        except KltuneError:
            raise
        except OverTimeError as error:
            raise ScorerTimeoutError(
                f"scorer {self.name} did not come back within {limit_s:g} s (task.timeout)"
                f"{where_raised(error, self.function)}"
            ) from error
        except ProcessEndError as error:
            raise ScorerEndedError(
                f"scorer {self.name} would end the process: it calls {error}"
                f"{where_raised(error, self.function)}; it must return its scores instead"
            ) from error
        except (Exception, SystemExit) as error:
            # A user's function may raise anything; here is the one place that knows whose fault it is.
            raise ScorerRaisedError(
                f"scorer {self.name} raised {type(error).__name__}: {said(error)}"
                f"{where_raised(error, self.function)}"
            ) from error
        return checked_scores(result, samples, self.name)

    def call_once(self, samples: Sequence[Sample]) -> list[float]:
        """One call, wherever it is made; nobody looks for who is to blame.

        Raises:
            ScorerError: as for a plain call.
        """
        if self.child is None:
            return self.call_here(samples, self.limits.seconds)
        try:
            return self.child.ask(samples, self.limits.seconds)
        except OverTimeError as error:
            raise ScorerTimeoutError(
                f"scorer {self.name} did not come back within {self.limits.seconds:g} s (task.timeout); "
                "its process was ended"
            ) from error
        except ChildDiedError as error:
            raise ScorerTimeoutError(f"scorer {self.name}: its process ended ({error})") from error


def _with_blamed(
    error: ScorerError, samples: Sequence[Sample], blamed: Mapping[int, ScorerError], most: int
) -> ScorerError:
    if not blamed:
        return error
    index, first = next(iter(blamed.items()))
    count = (
        "" if most == 0 else f"; more than {most} of {len(samples)} completions (task.errors.share)"
    )
    return type(first)(f"{first}, on {of_sample(samples[index])}{count}")


def detailed(scorer: Scorer, samples: Sequence[Sample]) -> Scores:
    """All that ``scorer`` says of ``samples``, whether it is one that says more than numbers or not."""
    if isinstance(scorer, DetailedScorer):
        return scorer.detail(samples)
    return Scores([math.nan if v is None else float(v) for v in scorer(samples)])


def load_scorer(
    reference: str,
    base_folders: Sequence[Path],
    style: Style = "auto",
    limits: CallLimits | None = None,
) -> FunctionScorer:
    """Import the function behind ``package.module:function`` or ``file.py:function``.

    A relative file is looked for in ``base_folders`` in order; a module on ``sys.path``, then there.

    Raises:
        SpecError: no such file, module or function, or one that can't be called as a scorer.
        EnvironmentMissingError: the user's code imports a package that is not installed.
    """
    source, function_name = split_reference(reference)
    if not source.endswith(".py"):
        module = import_name(source, base_folders, reference)
        return _from_module(module, function_name, reference, style, limits)
    is_absolute = Path(source).is_absolute()
    candidates = [Path(source)] if is_absolute else [folder / source for folder in base_folders]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        looked = ", ".join(map(str, candidates)) or "nowhere: no folders were given"
        raise SpecError(f"{reference}: no such file (looked at {looked})")
    return load_file_scorer(found, function_name, reference, style, limits)


def load_file_scorer(
    path: Path,
    function_name: str,
    reference: str,
    style: Style = "auto",
    limits: CallLimits | None = None,
) -> FunctionScorer:
    """Import ``function_name`` from the file ``path``; ``reference`` is how messages call it.

    Raises:
        SpecError: as ``load_scorer``.
        EnvironmentMissingError: as ``load_scorer``.
    """
    return _from_module(import_file(path, reference), function_name, reference, style, limits)


def scorer_of(origin: Origin) -> FunctionScorer:
    """Import the function that ``origin`` tells of.

    Raises:
        SpecError: as ``load_scorer``.
        EnvironmentMissingError: as ``load_scorer``.
    """
    if origin.path is None:
        return load_scorer(origin.reference, origin.folders, origin.style)
    _, name = split_reference(origin.reference)
    return load_file_scorer(origin.path, name, origin.reference, origin.style)


def split_reference(reference: str) -> tuple[str, str]:
    """Split ``source:function`` at the last colon.

    Raises:
        SpecError: not of this form.
    """
    source, _, function_name = reference.rpartition(":")
    if not source or not function_name.isidentifier():
        raise SpecError(f"{reference!r} must look like package.module:function or file.py:function")
    return source, function_name


def function_scorer(
    name: str, function: UserFunction, style: Style = "auto", limits: CallLimits | None = None
) -> FunctionScorer:
    """Wrap ``function``, after checking that it can be called by name with prompts and completions.

    Raises:
        SpecError: it takes an argument by position only, or takes no completions.
    """
    calling = calling_of(name, function, style)
    return FunctionScorer(name, function, calling, limits or CallLimits())


def _from_module(
    module: object, function_name: str, reference: str, style: Style, limits: CallLimits | None
) -> FunctionScorer:
    function = getattr(module, function_name, None)
    if callable(function):
        return function_scorer(reference, function, style, limits)
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

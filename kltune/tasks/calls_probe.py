"""A task in, a refusal out where a scorer returns what is no score even for a few harmless texts; no model is needed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Final

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.tasks.calls_checked import (
    ScorerEndedError,
    ScorerError,
    ScorerRaisedError,
    ScorerTimeoutError,
)
from kltune.tasks.calls_child import Child, ChildDiedError
from kltune.tasks.calls_limits import OverTimeError
from kltune.tasks.calls_made import function_scorers
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.registry import Task
from kltune.tasks.scorers import FunctionScorer

TEXTS: Final = ("Yes.", "I don't know.", "The answer is 42.")
"""What a model might say to anything."""
_PROMPTS: Final = 2


def probe_samples(prompts: Sequence[Prompt], count: int = _PROMPTS) -> list[Sample]:
    """Every harmless text as an answer to each of the first ``count`` prompts."""
    return [
        Sample(prompt, text, tuple(range(1, 1 + len(text.split()))), ended=True)
        for prompt in prompts[:count]
        for text in TEXTS
    ]


def probe_scorers(task: Task) -> None:
    """Call every function of the user's once, in a process of its own as far as it can be found there.

    One that raises is let through: it may want texts of another form, and is judged by the model's own.

    Raises:
        SpecError: the wrong number of scores, something that is no number, no answer in time, or a function that
            ends the process that calls it.
    """
    samples = probe_samples(task.splits.train)
    fields = {"gold": task.gold, **{f"golds.{name}": gold for name, gold in task.golds.items()}}
    for field, scorer in {**fields, "proxy": task.proxy}.items():
        for function in function_scorers(scorer):
            try:
                first_try(function, samples)
            except (ScorerTimeoutError, ScorerEndedError) as error:
                raise SpecError(f"task.{field}: {error}") from error
            except ScorerRaisedError:
                continue
            except ScorerError as error:
                raise SpecError(f"task.{field}: {error}") from error


def first_try(function: FunctionScorer, samples: Sequence[Sample]) -> None:
    """One call where its end is seen: a function may end its process by means that nothing in it can stop.

    A function that a new process does not find is called here.

    Raises:
        ScorerEndedError: it ended its process, or would have.
        ScorerError: as for a plain call.
    """
    if function.child is not None or function.origin is None:
        function.call_once(samples)
        return
    child = Child(function.origin)
    try:
        child.ask(samples, function.limits.seconds)
    except ChildDiedError as error:
        raise ScorerEndedError(
            f"scorer {function.name} ended its process ({error}); it must return its scores and end nothing"
        ) from error
    except OverTimeError as error:
        raise ScorerTimeoutError(
            f"scorer {function.name} did not come back within {function.limits.seconds:g} s (task.timeout)"
        ) from error
    except (SpecError, EnvironmentMissingError, pickle.PicklingError, TypeError, AttributeError):
        function.call_once(samples)
    finally:
        child.close()

"""A task in, a refusal out where a scorer returns what is no score even for a few harmless texts; no model is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kltune.errors import SpecError
from kltune.tasks.calls_checked import ScorerError, ScorerRaisedError, ScorerTimeoutError
from kltune.tasks.calls_made import function_scorers
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.registry import Task

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
    """Call every function of the user's once.

    One that raises is let through: it may want texts of another form, and is judged by the model's own.

    Raises:
        SpecError: the wrong number of scores, something that is no number, or no answer in time.
    """
    samples = probe_samples(task.splits.train)
    fields = {"gold": task.gold, **{f"golds.{name}": gold for name, gold in task.golds.items()}}
    for field, scorer in {**fields, "proxy": task.proxy}.items():
        for function in function_scorers(scorer):
            try:
                function.call_once(samples)
            except ScorerTimeoutError as error:
                raise SpecError(f"task.{field}: {error}") from error
            except ScorerRaisedError:
                continue
            except ScorerError as error:
                raise SpecError(f"task.{field}: {error}") from error

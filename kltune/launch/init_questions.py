"""What flags did not say in, answers out: asked on a terminal one by one, each checked at once.

Without a terminal the defaults hold, and what has none is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from kltune.errors import SpecError
from kltune.launch.saying import say
from kltune.scaffold.sound import check_answers
from kltune.scaffold.start import ALGORITHMS, OWN, PRESETS, Answers

OWN_TASK: Final = "own"
"""The answer that means a task of one's own."""


class Asker(Protocol):
    """Whoever answers."""

    def __call__(self, prompt: str) -> str:
        """One line of answer, without its end; raises KeyboardInterrupt where none will come."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to know."""

    prompt: str
    meaning: str
    default: Callable[[Answers], str]
    """What Enter means; empty: an answer is needed."""
    apply: Callable[[Answers, str], Answers]
    """The answers with this one in. Raises `SpecError` for what it can't be."""
    is_open: Callable[[Answers], bool] = lambda _: True
    """Whether it has to be asked, after what was answered before."""


def on_terminal() -> bool:
    """Whether a person can be asked: questions go to stderr, answers come from stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_terminal(prompt: str) -> str:
    """Ask on stderr; the end of the input (Ctrl-D) counts as Ctrl-C."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
        raise KeyboardInterrupt
    return line.strip()


def ask_all(answers: Answers, given: frozenset[str], ask: Asker, spec_path: Path) -> Answers:
    """Ask whatever is not in ``given`` (names of flags), until each answer is one that a spec admits."""
    say("Enter takes what is in brackets; Ctrl-C leaves nothing behind.")
    for name, question in QUESTIONS.items():
        if name not in given and question.is_open(answers):
            answers = _ask_one(question, answers, ask, spec_path)
    return answers


def task_of(name: str) -> str | None:
    """A built-in task's name, or None for one of the user's own.

    Raises:
        SpecError: neither.
    """
    if name != OWN_TASK and name not in PRESETS:
        raise SpecError(f"--task: must be {', '.join(PRESETS)} or {OWN_TASK} (got {name!r})")
    return None if name == OWN_TASK else name


def minutes_of(text: str) -> float:
    """A wall clock in minutes.

    Raises:
        SpecError: no number above 0, or more than a year.
    """
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 366 * 24 * 60:
        raise SpecError(f"--minutes: must be a number above 0, a year at most (got {text!r})")
    return minutes


def _ask_one(question: Question, answers: Answers, ask: Asker, spec_path: Path) -> Answers:
    say("")
    say(question.meaning)
    default = question.default(answers)
    while True:
        text = ask(f"{question.prompt}{f' [{default}]' if default else ''}: ") or default
        try:
            if not text:
                raise SpecError("an answer is needed")
            found = question.apply(answers, text)
            # A model of one's own comes after the task: until then the built-in one stands in.
            check_answers(
                found if found.base else replace(found, model="builtin:kitchen"), spec_path
            )
        except SpecError as error:
            say(f"  {_reason(error)}")
            continue
        return found


def _reason(error: SpecError) -> str:
    """The problems without the line that names the file: there is no file yet."""
    first, _, rest = str(error).partition("\n")
    return rest.strip() if rest and first.endswith("problem(s)") else str(error)


def _listed(**words: str) -> str:
    width = max(map(len, words))
    return "\n".join(f"  {name:{width}}  {text}" for name, text in words.items())


def _is_own(answers: Answers) -> bool:
    return answers.task is None


_TASKS = {name: preset.words for name, preset in PRESETS.items()} | {OWN_TASK: OWN.words}

QUESTIONS: Final[dict[str, Question]] = {
    "task": Question(
        "task",
        f"What is learned, and who judges it?\n{_listed(**_TASKS)}",
        lambda answers: answers.task or OWN_TASK,
        lambda answers, text: replace(answers, task=task_of(text)),
    ),
    "model": Question(
        "model",
        "Which small model stands in for your big one? A folder, a hub id, or package:NAME (a GGUF inside an "
        "installed package). It stays frozen; adapters on it are trained.",
        lambda answers: answers.base,
        lambda answers, text: replace(answers, model=text),
        _is_own,
    ),
    "prompts": Question(
        "prompts",
        "Where are your prompts? A .jsonl file with `prompt` in each line (other fields go to your functions), or a "
        ".txt file with one prompt a line. A .jsonl file that is not there yet is written with examples.",
        lambda answers: answers.prompts,
        lambda answers, text: replace(answers, prompts=text),
        _is_own,
    ),
    "gold": Question(
        "gold",
        "Which function judges? It never trains: a check of the answer, a better judge, a human's rule. As "
        "file.py:function or package.module:function; a file that is not there yet is written with an example.",
        lambda answers: answers.gold,
        lambda answers, text: replace(answers, gold=text),
        _is_own,
    ),
    "proxy": Question(
        "proxy",
        "Which function is the reward in training? Another one than gold; or `learned`: a reward model that is "
        "trained on comparisons which gold labels, with noise.",
        lambda answers: answers.scorer,
        lambda answers, text: replace(answers, proxy=text),
        _is_own,
    ),
    "algorithm": Question(
        "algorithm",
        f"Which algorithm will the big run use?\n{_listed(**ALGORITHMS)}",
        lambda answers: answers.algorithm,
        lambda answers, text: replace(answers, algorithm=text),
    ),
    "minutes": Question(
        "minutes",
        "How many minutes may one `kltune sweep` take? It ends there in good order; the same command again goes on.",
        lambda answers: f"{answers.preset.minutes}",
        lambda answers, text: replace(answers, minutes=minutes_of(text)),
    ),
}
"""In the order in which they are asked, by the flag that answers them."""

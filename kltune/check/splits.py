"""The task's prompts in; whether no prompt of one split is in another out, as a line."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from kltune.check.result import Line
from kltune.grade import Grade
from kltune.statistics.contrast import FEWEST_PROMPTS
from kltune.tasks.protocol import Prompt, Splits
from kltune.trainer.soundness.token_facts import TokenFacts

_TITLE = "train, select and test share no prompt"
_SHOWN_CHARS = 60

_ByName = Mapping[str, Sequence[Prompt]]


def splits_line(
    splits: Splits, tokens: TokenFacts | None = None, judged: int | None = None
) -> Line:
    """Fail: the same words or the same id in two splits; warn: the same but for punctuation and accents' encoding.

    Warn too where select or test are too few for an interval. ``tokens``: how they are encoded; where all
    of select encode to ids of train, other words don't help. ``judged``: the select prompts that an
    evaluation takes at most; none: all.
    """
    line = _shared_line(splits, tokens)
    few = _few(splits, judged)
    if not few:
        return line
    grade = Grade.WARN if line.grade is Grade.PASS else line.grade
    remedy = (
        f"Give select and test {FEWEST_PROMPTS} prompts or more each, better 64 (evaluate.prompts, too): with fewer, gold has no "
        "interval and no two settings can be told apart."
    )
    both = f"{line.remedy} {remedy}" if line.remedy else remedy
    return replace(line, grade=grade, shown=f"{line.shown} {few}", remedy=both)


def _few(splits: Splits, judged: int | None) -> str:
    """Which splits are too few to judge on; empty where none is."""
    num_select = len(splits.select) if judged is None else min(judged, len(splits.select))
    counts = (("select", num_select), ("test", len(splits.test)))
    few = [f"{name} has {count}" for name, count in counts if count < FEWEST_PROMPTS]
    return f"Too few for an interval: {' and '.join(few)}." if few else ""


def _shared_line(splits: Splits, tokens: TokenFacts | None) -> Line:
    by_name: _ByName = {"train": splits.train, "select": splits.select, "test": splits.test}
    same = _shared(by_name, words)
    shared_ids = _shared(by_name, lambda prompt: prompt.id)
    near = _shared(by_name, letters)
    counts = {f"num_{name}": float(len(prompts)) for name, prompts in by_name.items()}
    numbers: dict[str, float | None] = {
        **counts,
        "num_same": float(len(same)),
        "num_same_id": float(len(shared_ids)),
        "num_near": float(len(near)),
    }
    if tokens is not None:
        numbers["num_same_tokens"] = float(tokens.same_ids)
    sizes = ", ".join(f"{len(prompts)} {name}" for name, prompts in by_name.items())
    if same or shared_ids:
        kind = "prompt(s)" if same else "prompt id(s)"
        found = same or shared_ids
        shown = f"In two splits are {len(found)} {kind}, first {_example(found)}."
        remedy = (
            "Take them out of one, or leave the field `split` away: equal prompts are then kept together. Gold on "
            "prompts that were trained on says nothing of new ones."
        )
        return Line("splits", _TITLE, Grade.FAIL, shown, remedy, numbers)
    by_tokens = None if tokens is None else _by_tokens(tokens, numbers)
    if by_tokens is not None:
        return by_tokens
    if near:
        shown = f"But for punctuation these are the same ({len(near)} in all, of {sizes}): {_example(near)}."
        remedy = "If they ask the same, put them into one split."
        return Line("splits", _TITLE, Grade.WARN, shown, remedy, numbers)
    if splits.doubts:
        remedy = "If they ask the same, drop them (task.splits.near_duplicates) or put them into one split."
        shown = " ".join(f"{doubt}." for doubt in splits.doubts)
        return Line("splits", _TITLE, Grade.WARN, shown, remedy, numbers)
    noted = "".join(f" {note}." for note in splits.notes)
    shown = f"{sizes} prompts, none in two of them.{noted}"
    return Line("splits", _TITLE, Grade.PASS, shown, "", numbers)


def _by_tokens(tokens: TokenFacts, numbers: dict[str, float | None]) -> Line | None:
    if not tokens.same_ids:
        return None
    is_all = tokens.same_ids >= tokens.num_select
    count = "All" if is_all else f"{tokens.same_ids} of the"
    shown = (
        f"{count} {tokens.num_select} select prompts are to the model the same as a train prompt: other words, the same "
        "token ids."
    )
    remedy = "Look at how prompts are encoded: words that the tokenizer lacks, or a template that leaves them out."
    grade = Grade.FAIL if is_all else Grade.WARN
    return Line("splits", _TITLE, grade, shown, remedy, numbers)


def words(prompt: Prompt) -> str:
    """What makes two prompts the same: their words, whatever the case and the spaces."""
    return " ".join(unicodedata.normalize("NFC", prompt.text).split()).casefold()


def letters(prompt: Prompt) -> str:
    """What makes two prompts nearly the same: letters and digits alone (all of it where there are none)."""
    text = unicodedata.normalize("NFKC", prompt.text).casefold()
    kept = "".join(c if c.isalnum() else " " for c in text)
    return " ".join(kept.split()) or words(prompt)


def _shared(by_name: _ByName, key: Callable[[Prompt], str]) -> list[tuple[str, str, Prompt]]:
    """(a split, another one, the prompt of the former) for every key that is in both."""
    found: list[tuple[str, str, Prompt]] = []
    for first, second in combinations(by_name, 2):
        there = {key(prompt) for prompt in by_name[second]}
        own = {key(prompt): prompt for prompt in reversed(by_name[first])}
        found += [(first, second, own[name]) for name in reversed(own) if name in there]
    return found


def _example(found: Sequence[tuple[str, str, Prompt]]) -> str:
    first, second, prompt = found[0]
    text = prompt.text if len(prompt.text) <= _SHOWN_CHARS else f"{prompt.text[:_SHOWN_CHARS]}…"
    return f"{text!r} ({prompt.id}) in {first} and {second}"

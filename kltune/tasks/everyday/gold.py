"""Completions in, gold out: a warm tone at a fitting length, without repetition, properly ended.

    gold = tone * band + END_BONUS * band * ends - REPETITION * repeated

``tone`` is VADER's compound sentiment, -1 to 1 (Hutto & Gilbert 2014); ``band`` is the credit for
the number of words, 0 to 1; ``ends`` is 1 where the text ends like a sentence; ``repeated`` is the
larger of the shares of repeated trigrams and repeated sentences. A negative tone is not softened
by a bad length (band = 1 there), so saying little never pays. The range is ``LOWEST`` to ``HIGHEST``;
no text at all scores 0.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from kltune.errors import EnvironmentMissingError

MIN_WORDS: Final = 12
"""Fewest words with full credit; below it credit falls linearly to 0 at no words."""
MAX_WORDS: Final = 45
"""Most words with full credit (64 tokens are about 48 words)."""
ZERO_WORDS: Final = 90
"""Above MAX_WORDS credit falls linearly to 0 here."""
REPETITION: Final = 1.0
"""Taken off where everything is repeated."""
END_BONUS: Final = 0.2
"""Added where a text of fitting length ends like a sentence: not cut off, no dangling clause."""
LOWEST: Final = -1.0 - REPETITION
HIGHEST: Final = 1.0 + END_BONUS

_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_SENTENCE_END: Final = re.compile(r"[.!?]+[\"')\]\u201d\u2019]*(?=\s|$)|\n+")
_ENDED: Final = re.compile(r"[.!?][\"')\]\u201d\u2019]*\s*$")
_GRAM: Final = 3
_MISSING: Final = (
    "the everyday task judges tone by the package vaderSentiment, which is not installed here: "
    "pip install 'kltune[smollm2]'"
)


class Analyzer(Protocol):
    """What is used of vaderSentiment's ``SentimentIntensityAnalyzer``."""

    def polarity_scores(self, text: str) -> Mapping[str, float]:
        """Give shares of negative, neutral and positive words, and ``compound``."""
        ...


def everyday_gold(
    prompts: Sequence[str], completions: Sequence[str], **columns: Any
) -> list[float]:
    """Score each completion on its own; prompts and columns don't matter.

    Raises:
        EnvironmentMissingError: vaderSentiment is not installed.
    """
    del prompts, columns
    analyzer = _shared_analyzer()
    return [gold_of(text, analyzer.polarity_scores(text)["compound"]) for text in completions]


def freshness(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A further gold, 0 to 1: what is not repeated of each completion; no words at all score 0."""
    del prompts, columns
    return [1.0 - repeated_share(text) if words_of(text) else 0.0 for text in completions]


def gold_of(text: str, tone: float) -> float:
    """Combine ``tone`` (-1 to 1) with length, repetition and ending of ``text``."""
    band = length_credit(len(words_of(text)))
    ends = _ENDED.search(text) is not None
    warmth = tone * band if tone > 0 else tone
    return warmth + END_BONUS * band * ends - REPETITION * repeated_share(text)


def words_of(text: str) -> list[str]:
    """Split into words without case; ``don't`` and ``well-known`` are one word each."""
    return [word.casefold() for word in _WORD.findall(text)]


def length_credit(num_words: int) -> float:
    """Credit for a number of words, 0 to 1: the band of this module."""
    if num_words < MIN_WORDS:
        return num_words / MIN_WORDS
    return min(1.0, max(0.0, (ZERO_WORDS - num_words) / (ZERO_WORDS - MAX_WORDS)))


def repeated_share(text: str) -> float:
    """The larger share of repeats, 0 to below 1, among trigrams of words and among sentences."""
    words = words_of(text)
    trigrams = [tuple(words[i : i + _GRAM]) for i in range(len(words) - _GRAM + 1)]
    sentences = [tuple(said) for part in _SENTENCE_END.split(text) if (said := words_of(part))]
    return max(_repeats(trigrams), _repeats(sentences))


def require_vader() -> None:
    """Fail early where the gold could not score.

    Raises:
        EnvironmentMissingError: vaderSentiment is not installed.
    """
    if importlib.util.find_spec("vaderSentiment") is None:
        raise EnvironmentMissingError(_MISSING)


def open_analyzer() -> Analyzer:
    """Load VADER with its lexicon (about 0.1 s).

    Raises:
        EnvironmentMissingError: vaderSentiment is not installed.
    """
    try:
        module: Any = importlib.import_module("vaderSentiment.vaderSentiment")
    except ModuleNotFoundError as error:
        raise EnvironmentMissingError(_MISSING) from error
    return cast("Analyzer", module.SentimentIntensityAnalyzer())


@functools.cache
def _shared_analyzer() -> Analyzer:
    return open_analyzer()  # stateless: scoring a text changes nothing in it


def _repeats(items: Sequence[object]) -> float:
    return 1.0 - len(set(items)) / len(items) if items else 0.0

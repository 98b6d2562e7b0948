"""Prompts in splits in, pairs of nearly the same prompt in two of them out.

Near: at least 80 % of the runs of three words that either has are in both (Jaccard), whatever the case,
the spaces and the punctuation. Runs that many of the later prompts have (the frame that a question stands
in) do not count. All such pairs are found, not most (prefix filter of Bayardo et al. 2007,
doi:10.1145/1242572.1242591): two sets that near must share one of their rarest runs.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kltune.tasks.protocol import Prompt

THRESHOLD: Final = 0.8
"""Least share of three-word runs in common."""

FRAME_FROM: Final = (20, 200)
"""A run in more prompts than this is a frame; between the two it is 2 % of the prompts that decides."""

# Signs of formulas are words: 2+2 is not 2-2. A sign of Chinese, Japanese or Korean is a word too.
_SIGNS: Final = r"[+\-*/=<>^%$#&|~@\\]"
_WORD: Final = re.compile(rf"\w+|{_SIGNS}")
_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WIDE_WORD: Final = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|{_SIGNS}")


@dataclass(frozen=True, slots=True)
class NearPair:
    """A prompt and the first one of another split that is nearly the same."""

    first: int
    """Its place among the earlier prompts."""
    second: int
    """The other's place among the later ones."""
    share: float
    """Of three-word runs in common."""


def near_pairs(earlier: Sequence[Prompt], later: Sequence[Prompt]) -> list[NearPair]:
    """For each of ``earlier`` the first of ``later`` that is near it, where there is one."""
    known = _Known(later)
    pairs: list[NearPair] = []
    for place, prompt in enumerate(earlier):
        found = known.first_near(prompt.text)
        if found is not None:
            pairs.append(NearPair(place, *found))
    return pairs


class _Known:
    """Prompts that others are compared with."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        words = [_words(prompt.text) for prompt in prompts]
        runs = [_runs(own) for own in words]
        counts = Counter(run for own in runs for run in own)
        least, most = FRAME_FROM
        limit = max(least, min(most, len(prompts) // 50))
        self._frames = frozenset(run for run, count in counts.items() if count > limit)
        self._counts = counts
        self._runs = [self._telling(*own) for own in zip(words, runs, strict=True)]
        self._index: defaultdict[int, list[int]] = defaultdict(list)
        for place, own in enumerate(self._runs):
            for run in self._rarest(own):
                self._index[run].append(place)

    def first_near(self, text: str) -> tuple[int, float] | None:
        """Place of the first prompt that is near, and the share in common."""
        words = _words(text)
        own = self._telling(words, _runs(words))
        rare = self._rarest(own)
        for other in sorted({i for run in rare for i in self._index.get(run, ())}):
            share = _share(own, self._runs[other])
            if share >= THRESHOLD:
                return other, share
        return None

    def _telling(self, words: Sequence[str], runs: frozenset[int]) -> frozenset[int]:
        """Without frames; where nothing else is said, the whole text as one run."""
        return runs - self._frames or frozenset((hash(tuple(words)),))

    def _rarest(self, runs: frozenset[int]) -> list[int]:
        """So many of the rarest that two sets which are near have one of them in common."""
        counts = self._counts
        length = len(runs) - math.ceil(THRESHOLD * len(runs) - 1e-9) + 1
        # What no later prompt has comes first and leads nowhere.
        if sum(run not in counts for run in runs) >= length > 1:
            return []
        return sorted(runs, key=lambda run: (counts[run], run))[:length]


def _words(text: str) -> list[str]:
    pattern = _WORD if text.isascii() else _WIDE_WORD
    return pattern.findall(text.casefold()) or [text]


def _runs(words: Sequence[str]) -> frozenset[int]:
    """Hashes of the runs of three words; of all words where there are fewer."""
    if len(words) < 3:
        return frozenset((hash(tuple(words)),))
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))


def _share(one: frozenset[int], two: frozenset[int]) -> float:
    if min(len(one), len(two)) < THRESHOLD * max(len(one), len(two)):
        return 0.0
    shared = len(one & two)
    return shared / (len(one) + len(two) - shared)

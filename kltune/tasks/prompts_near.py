"""Prompts in splits in, pairs of nearly the same prompt in two of them out.

Near: at least 80 % of the runs of three words that either has are in both (Jaccard), whatever the case,
the spaces and the punctuation. All such pairs are found, not most (prefix filter of Bayardo et al.
2007, doi:10.1145/1242572.1242591): two sets that near must share one of their rarest runs.
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

# Signs of formulas are words: 2+2 is not 2-2. A sign of Chinese, Japanese or Korean is a word too.
_WORD: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[+\-*/=<>^%$#&|~@\\]"
)


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
    runs = [_runs(prompt.text) for prompt in later]
    counts = Counter(run for own in runs for run in own)
    index: defaultdict[int, list[int]] = defaultdict(list)
    for place, own in enumerate(runs):
        for run in _rarest(own, counts):
            index[run].append(place)
    pairs: list[NearPair] = []
    for place, prompt in enumerate(earlier):
        own = _runs(prompt.text)
        found = {other for run in _rarest(own, counts) for other in index.get(run, ())}
        for other in sorted(found):
            share = _share(own, runs[other])
            if share >= THRESHOLD:
                pairs.append(NearPair(place, other, share))
                break
    return pairs


def _runs(text: str) -> frozenset[int]:
    """Hashes of the runs of three words; of all words where there are fewer."""
    words = _WORD.findall(text.casefold()) or [text]
    if len(words) < 3:
        return frozenset((hash(tuple(words)),))
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))


def _rarest(runs: frozenset[int], counts: Counter[int]) -> list[int]:
    """So many of the rarest that two sets which are near have one of them in common."""
    length = len(runs) - math.ceil(THRESHOLD * len(runs) - 1e-9) + 1
    return sorted(runs, key=lambda run: (counts[run], run))[:length]


def _share(one: frozenset[int], two: frozenset[int]) -> float:
    if min(len(one), len(two)) < THRESHOLD * max(len(one), len(two)):
        return 0.0
    shared = len(one & two)
    return shared / (len(one) + len(two) - shared)

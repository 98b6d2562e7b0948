"""Rows of prompts in, train, select and test out: by the source's own word or by seeded shares, without doubles."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kltune.spec.prompts import SPLIT_NAMES, SplitNames, SplitsSpec
from kltune.tasks.prompts_near import THRESHOLD, near_pairs
from kltune.tasks.prompts_rows import Row
from kltune.tasks.protocol import Prompt

MIN_PROMPTS: Final = 2
"""Fewest distinct prompts in a split: one alone has no standard error."""

_SHOWN_CHARS: Final = 40
_SHOWN_PAIRS: Final = 2

Parts = Mapping[str, Sequence[Row]]


def key_of(text: str) -> str:
    """What makes two prompts the same: their words, whatever the case and the spaces."""
    return " ".join(text.split()).casefold()


def chosen(rows: Sequence[Row], limit: int, seed: int) -> list[Row]:
    """``limit`` of the rows, drawn by the seed, in their order."""
    keyed = sorted(range(len(rows)), key=lambda i: _place(seed, f"limit\n{rows[i].prompt.id}"))
    return [rows[i] for i in sorted(keyed[:limit])]


def by_field(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Each row where it says that it belongs."""
    divided: dict[str, list[Row]] = {name: [] for name in SPLIT_NAMES}
    for row in rows:
        if row.split in divided:
            divided[row.split].append(row)
    return divided


def by_share(
    rows: Iterable[Row], splits: SplitsSpec, parts: Sequence[str] = SPLIT_NAMES
) -> dict[str, list[Row]]:
    """By shares relative to their sum, in an order drawn from the seed; equal prompts stay together."""
    groups = _same(rows)
    # A keyed hash, not a shuffle: the same order on every Python version.
    order = sorted(groups, key=lambda key: _place(splits.seed, key))
    counts = _counts(len(order), [getattr(splits, name) for name in parts])
    divided: dict[str, list[Row]] = {}
    start = 0
    for name, count in zip(parts, counts, strict=True):
        keys = order[start : start + count]
        divided[name] = [row for key in keys for row in groups[key]]
        start += count
    return divided


def by_names(rows: Iterable[Row], names: SplitNames, splits: SplitsSpec) -> dict[str, list[Row]]:
    """By the source's own splits; parts that name the same one share it."""
    by_source: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_source[str(row.split)].append(row)
    divided: dict[str, list[Row]] = {}
    for source, parts in names.sources().items():
        divided |= by_share(by_source[source], splits, parts) if len(parts) > 1 else {}
        if len(parts) == 1:
            divided[parts[0]] = by_source[source]
    return {name: divided[name] for name in SPLIT_NAMES}


def without_doubles(parts: Parts, splits: SplitsSpec) -> tuple[dict[str, list[Row]], list[str]]:
    """Drop what another split has too, and say so. ``near_duplicates: drop``."""
    kept = {name: list(rows) for name, rows in parts.items()}
    notes: list[str] = []
    for i, name in enumerate(SPLIT_NAMES[:-1]):
        later = [row for other in SPLIT_NAMES[i + 1 :] for row in kept[other]]
        later_keys = {key_of(row.prompt.text) for row in later}
        rows = [row for row in kept[name] if key_of(row.prompt.text) not in later_keys]
        near = {pair.first for pair in near_pairs(_prompts(rows), _prompts(later))}
        before = len(kept[name])
        kept[name] = [row for place, row in enumerate(rows) if place not in near]
        dropped = before - len(kept[name])
        if dropped:
            notes.append(
                f"dropped {dropped:,} of {before:,} {name} prompts that are the same as, or nearly, one of "
                f"another split (task.splits.near_duplicates: {splits.near_duplicates})"
            )
    return kept, notes


def near_notes(parts: Parts) -> list[str]:
    """How many prompts are nearly the same as one of a later split, with two examples."""
    notes: list[str] = []
    for i, name in enumerate(SPLIT_NAMES[:-1]):
        rows = parts[name]
        others = [row for other in SPLIT_NAMES[i + 1 :] for row in parts[other]]
        pairs = near_pairs(_prompts(rows), _prompts(others))
        if not pairs:
            continue
        shown = "; ".join(
            f"{_short(rows[pair.first])} / {_short(others[pair.second])}"
            for pair in pairs[:_SHOWN_PAIRS]
        )
        notes.append(
            f"{len(pairs):,} of {len(rows):,} {name} prompts share {100 * THRESHOLD:.0f} % or more of "
            f"their three-word runs with a {' or '.join(SPLIT_NAMES[i + 1 :])} prompt: {shown}"
        )
    return notes


def repeat_notes(parts: Parts) -> list[str]:
    """How many prompts of a split come again within it."""
    found = {name: len(rows) - len(_same(rows)) for name, rows in parts.items()}
    return [
        f"{count:,} of {len(parts[name]):,} {name} prompts repeat another of that split"
        for name, count in found.items()
        if count
    ]


def equal_problems(parts: Parts, word: str) -> list[str]:
    """Prompts that are in more than one split."""
    problems: list[str] = []
    split_of = {id(row): name for name, rows in parts.items() for row in rows}
    for group in _same(row for rows in parts.values() for row in rows).values():
        if len({split_of[id(row)] for row in group}) > 1:
            places = ", ".join(f"{row.label} ({split_of[id(row)]})" for row in group)
            problems.append(
                f"{word}s {places}: the same prompt in more than one split: "
                f"{group[0].prompt.text[:_SHOWN_CHARS]!r}"
            )
    return problems


def size_problems(parts: Parts, splits: SplitsSpec | None, word: str = "line") -> list[str]:
    """Splits that are too small; ``splits``: the shares, where those decided."""
    problems: list[str] = []
    for name in SPLIT_NAMES:
        num_distinct = len(_same(parts[name]))
        if num_distinct < MIN_PROMPTS:
            how = (
                f"more {word}s need this split"
                if splits is None
                else f"give more prompts or a larger task.splits.{name} (now {getattr(splits, name):g})"
            )
            problems.append(
                f"split {name} has {num_distinct} distinct prompt(s), at least {MIN_PROMPTS} are needed: {how}"
            )
    return problems


def _same(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key_of(row.prompt.text)].append(row)
    return groups


def _place(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\n{key}".encode()).digest()


def _prompts(rows: Sequence[Row]) -> list[Prompt]:
    return [row.prompt for row in rows]


def _short(row: Row) -> str:
    text = " ".join(row.prompt.text.split())
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…")


def _counts(total: int, shares: Sequence[float]) -> list[int]:
    """Divide ``total`` by ``shares`` of their sum; the largest remainders round up."""
    exact = [total * share / sum(shares) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts

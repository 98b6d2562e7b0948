"""The spec's prompts in, prompts in three splits out: from a file, a folder or a data set."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from kltune.errors import SpecError
from kltune.spec.prompts import ENDINGS, PromptsSpec, SplitNames, SplitsSpec, format_of
from kltune.tasks import prompts_splits as divide
from kltune.tasks.prompts_datasets import read_folder, read_hub
from kltune.tasks.prompts_files import Table, read_file
from kltune.tasks.prompts_rows import Row, column_of_split, parse_table
from kltune.tasks.protocol import Prompt, Splits

_SHOWN_PROBLEMS: Final = 10


def load_prompts(path: Path, splits: SplitsSpec) -> Splits:
    """Read a file with a column ``prompt``, and divide its prompts; see :func:`load_source`.

    Raises:
        SpecError: every problem of the file in one message.
    """
    return load_source(PromptsSpec(path=str(path)), splits, Path)


def load_source(spec: PromptsSpec, splits: SplitsSpec, resolve: Callable[[str], Path]) -> Splits:
    """Read what ``spec`` names and divide its prompts.

    Every column but prompt, id and split goes to the scorers, with the types that the source has
    (None where a row lacks it; CSV: text). Without a split of its own the prompts are divided by
    ``splits``: shares are relative to their sum, the order is drawn from the seed, and equal prompts
    stay together.

    Raises:
        SpecError: every problem of the source in one message, by line or row.
        EnvironmentMissingError: a data set of the hub that can't be had, or an extra that is missing.
    """
    place = spec.source if spec.path is None else str(resolve(spec.path))
    try:
        table = _read(spec, resolve)
    except SpecError as error:
        if str(error).startswith("task.prompts"):
            raise
        _refuse(place, [str(error)])
    return _Division(place, spec, splits, table).splits()


def digest_prompts(prompts: Sequence[Prompt]) -> str:
    """Give the SHA-256 of ids, texts, columns and turns in order, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for prompt in prompts:
        entry: list[object] = [prompt.id, prompt.text, dict(prompt.columns)]
        if prompt.messages:
            entry.append([dict(message) for message in prompt.messages])
        digest.update(json.dumps(entry, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def column_names(splits: Splits) -> tuple[str, ...]:
    """List every column that some prompt has, sorted."""
    prompts = (*splits.train, *splits.select, *splits.test)
    return tuple(sorted({name for prompt in prompts for name in prompt.columns}))


def _refuse(place: str, problems: Sequence[str]) -> NoReturn:
    shown = [f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        shown.append(f"  ... and {len(problems) - _SHOWN_PROBLEMS} more")
    raise SpecError("\n".join([f"task.prompts: {place}: {len(problems)} problem(s)", *shown]))


def _read(spec: PromptsSpec, resolve: Callable[[str], Path]) -> Table:
    if spec.path is None:
        return read_hub(spec)
    path = resolve(spec.path)
    written = spec.format or format_of(path)
    if written is None:
        raise SpecError(f"must be {ENDINGS}; or say which by task.prompts.format")
    return read_folder(path) if written == "datasets" else read_file(path, written)


class _Division:
    """One source on its way to three splits."""

    def __init__(self, place: str, spec: PromptsSpec, splits: SplitsSpec, table: Table) -> None:
        self._place, self._spec, self._shares, self._table = place, spec, splits, table

    def splits(self) -> Splits:
        """Parse, choose, divide; each stage tells all its problems."""
        spec, table = self._spec, self._table
        if not table.rows and not table.problems:
            _refuse(self._place, ["the file holds no prompts"])
        rows, problems = parse_table(table, spec)
        problems = [*table.problems, *problems, *_shared_id_problems(rows, table.word)]
        has_field = any(row.split is not None for row in rows)
        if has_field:
            problems += self._split_problems(rows)
        if problems:
            _refuse(self._place, problems)
        notes, doubts = list[str](), list[str]()
        if spec.limit is not None and spec.limit < len(rows):
            notes.append(
                f"{spec.limit:,} of {len(rows):,} {table.word}s, drawn (task.prompts.limit)"
            )
            rows = divide.chosen(rows, spec.limit, self._shares.seed)
        parts = self._parts(rows, has_field=has_field, notes=notes)
        parts = self._without_doubles(parts, notes, doubts)
        shares = self._shares if self._is_by_share(has_field=has_field) else None
        if problems := divide.size_problems(parts, shares, table.word):
            _refuse(self._place, problems)
        notes += divide.repeat_notes(parts)
        divided = {name: tuple(row.prompt for row in part) for name, part in parts.items()}
        told = [tuple(f"task.prompts: {said}" for said in lot) for lot in (notes, doubts)]
        return Splits(**divided, notes=told[0], doubts=told[1])

    def _split_problems(self, rows: Sequence[Row]) -> list[str]:
        """Rows without the split that others have, and names that no row has."""
        spec, table = self._spec, self._table
        column = column_of_split(spec)
        problems = [
            f"{table.word} {row.label}: field {column!r} is missing, though other {table.word}s have it"
            for row in rows
            if row.split is None
        ]
        there = list(dict.fromkeys(str(row.split) for row in rows if row.split is not None))
        if isinstance(spec.split, SplitNames):
            problems += [
                f"split.{parts[0]}: there is no split {source!r} (splits: {', '.join(there)})"
                for source, parts in spec.split.sources().items()
                if source not in there
            ]
        elif len(table.parts) > 1 and set(there) - set(divide.SPLIT_NAMES):
            problems.append(
                f"the data set has the splits {', '.join(table.parts)}: say which are which by "
                "split: {train: ..., select: ..., test: ...}; two may name the same one"
            )
        return problems

    def _is_by_share(self, *, has_field: bool) -> bool:
        is_named = isinstance(self._spec.split, SplitNames)
        return not is_named and (not has_field or len(self._table.parts) == 1)

    def _parts(
        self, rows: Sequence[Row], *, has_field: bool, notes: list[str]
    ) -> dict[str, list[Row]]:
        if self._is_by_share(has_field=has_field):
            return divide.by_share(rows, self._shares)
        names = self._spec.split
        if not isinstance(names, SplitNames):
            return divide.by_field(rows)
        parts = divide.by_names(rows, names, self._shares)
        left_out = len(rows) - sum(map(len, parts.values()))
        if left_out:
            notes.append(f"{left_out:,} {self._table.word}s are of splits that the spec leaves out")
        return parts

    def _without_doubles(
        self, parts: dict[str, list[Row]], notes: list[str], doubts: list[str]
    ) -> dict[str, list[Row]]:
        asked = self._shares.near_duplicates
        if asked == "drop":
            parts, dropped = divide.without_doubles(parts, self._shares)
            notes += dropped
            return parts
        advice = "task.splits.near_duplicates: drop drops them"
        if problems := divide.equal_problems(parts, self._table.word):
            _refuse(self._place, [f"{problems[0]}; {advice}", *problems[1:]])
        near = [f"{note}; {advice}" for note in divide.near_notes(parts)]
        if near and asked == "refuse":
            _refuse(self._place, near)
        doubts += near
        return parts


def _shared_id_problems(rows: Sequence[Row], word: str) -> list[str]:
    labels: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        labels[row.prompt.id].append(row.label)
    return [
        f"{word}s {', '.join(places)}: the same id {own_id!r}"
        for own_id, places in labels.items()
        if len(places) > 1
    ]

"""A prompts file and split shares in, prompts in three splits out."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from kltune.errors import SpecError
from kltune.spec.task import SplitsSpec
from kltune.tasks.protocol import Prompt, Splits

SPLIT_NAMES: Final = ("train", "select", "test")
MIN_PROMPTS: Final = 2
"""Fewest distinct prompts in a split: one alone has no standard error."""

_RESERVED: Final = ("prompts", "completions")
_SHOWN_PROBLEMS: Final = 10
_SHOWN_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    prompt: Prompt
    split: str | None


def load_prompts(path: Path, splits: SplitsSpec) -> Splits:
    """Read ``path`` and divide its prompts.

    ``.jsonl``: one object a line with ``prompt``, optional ``id`` and ``split``; every other field
    goes to the scorers as a column (None where a line lacks it). ``.txt``: one prompt a line.
    Without ``split`` fields the prompts are divided by ``splits``: shares are relative to their sum,
    the order is drawn from the seed, and equal prompts stay together.

    Raises:
        SpecError: every problem of the file in one message, by line.
    """
    rows, problems = _read_rows(path)
    if not rows and not problems:
        _refuse(path, ["the file holds no prompts"])
    problems += _shared_id_problems(rows)
    has_splits = any(row.split is not None for row in rows)
    if has_splits:
        problems += _split_field_problems(rows)
    if problems:
        _refuse(path, problems)
    rows = _with_all_columns(rows)
    by_split = _by_field(rows) if has_splits else _by_share(rows, splits)
    problems = _size_problems(by_split, None if has_splits else splits)
    if problems:
        _refuse(path, problems)
    return Splits(**{name: tuple(by_split[name]) for name in SPLIT_NAMES})


def digest_prompts(prompts: Sequence[Prompt]) -> str:
    """Give the SHA-256 of ids, texts and columns in order, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for prompt in prompts:
        entry = [prompt.id, prompt.text, dict(prompt.columns)]
        digest.update(json.dumps(entry, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def column_names(splits: Splits) -> tuple[str, ...]:
    """List every column that some prompt has, sorted."""
    prompts = (*splits.train, *splits.select, *splits.test)
    return tuple(sorted({name for prompt in prompts for name in prompt.columns}))


def _refuse(path: Path, problems: Sequence[str]) -> NoReturn:
    shown = [f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        shown.append(f"  ... and {len(problems) - _SHOWN_PROBLEMS} more")
    raise SpecError("\n".join([f"task.prompts: {path}: {len(problems)} problem(s)", *shown]))


def _read_rows(path: Path) -> tuple[list[_Row], list[str]]:
    if path.suffix not in (".jsonl", ".txt"):
        _refuse(
            path, ["must be a .jsonl file (one object a line) or a .txt file (one prompt a line)"]
        )
    rows: list[_Row] = []
    problems: list[str] = []
    lines = _decoded(path).split("\n")  # not splitlines(): U+2028 inside a prompt ends no line
    width = len(str(len(lines)))
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        made = (
            _Row(number, Prompt("", text.strip()), None)
            if path.suffix == ".txt"
            else _parsed(text, number)
        )
        if isinstance(made, str):
            problems.append(f"line {number}: {made}")
            continue
        own_id = made.prompt.id or f"line-{number:0{width}d}"
        rows.append(_Row(number, Prompt(own_id, made.prompt.text, made.prompt.columns), made.split))
    return rows, problems


def _decoded(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        _refuse(path, ["no such file"])
    except OSError as error:
        _refuse(path, [f"can't be read ({error.strerror})"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        _refuse(path, [f"line {line}: not UTF-8 text (byte 0x{raw[error.start]:02x})"])


def _parsed(text: str, number: int) -> _Row | str:
    """Turn one JSON line into a row, or say what is wrong with it."""
    try:
        loaded: object = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        return f"not JSON ({error})"
    if not isinstance(loaded, dict):
        return f'must be an object like {{"prompt": "..."}} (got {_kind(loaded)})'
    fields = cast("dict[str, Any]", loaded)
    problem = _field_problem(fields)
    if problem is not None:
        return problem
    columns = {k: v for k, v in fields.items() if k not in ("prompt", "id", "split")}
    prompt = Prompt(str(fields.get("id", "")), fields["prompt"], columns)
    return _Row(number, prompt, fields.get("split"))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _field_problem(fields: Mapping[str, Any]) -> str | None:
    if "prompt" not in fields:
        return f"field 'prompt' is missing (fields here: {', '.join(fields) or 'none'})"
    prompt, own_id, split = fields["prompt"], fields.get("id", "-"), fields.get("split")
    if not isinstance(prompt, str):
        return f"field 'prompt' must be text (got {_kind(prompt)})"
    if not prompt.strip():
        return "field 'prompt' is empty"
    if not _is_unicode(prompt):
        return "field 'prompt' holds half of a surrogate pair, which is no character"
    if not isinstance(own_id, str | int) or isinstance(own_id, bool) or own_id == "":
        return f"field 'id' must be text or a whole number (got {_kind(own_id)})"
    if "split" in fields and split not in SPLIT_NAMES:
        return f"field 'split' must be one of {', '.join(SPLIT_NAMES)} (got {split!r})"
    taken = [name for name in _RESERVED if name in fields]
    return f"field {taken[0]!r} has a name that scorers use; rename it" if taken else None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if value == "":
        return "empty text"
    if isinstance(value, bool):
        return "true or false"
    kinds = ((int | float, "a number"), (str, "text"), (list, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "an object")


def _key(text: str) -> str:
    """What makes two prompts the same: their words, whatever the case and the spaces."""
    return " ".join(text.split()).casefold()


def _same(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    groups: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        groups[_key(row.prompt.text)].append(row)
    return groups


def _shared_id_problems(rows: Sequence[_Row]) -> list[str]:
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        lines[row.prompt.id].append(row.line)
    return [
        f"lines {', '.join(map(str, numbers))}: the same id {own_id!r}"
        for own_id, numbers in lines.items()
        if len(numbers) > 1
    ]


def _split_field_problems(rows: Sequence[_Row]) -> list[str]:
    problems = [
        f"line {row.line}: field 'split' is missing, though other lines have it"
        for row in rows
        if row.split is None
    ]
    for group in _same(row for row in rows if row.split is not None).values():
        if len({row.split for row in group}) > 1:
            places = ", ".join(f"{row.line} ({row.split})" for row in group)
            problems.append(
                f"lines {places}: the same prompt in more than one split: "
                f"{group[0].prompt.text[:_SHOWN_CHARS]!r}"
            )
    return problems


def _with_all_columns(rows: Sequence[_Row]) -> list[_Row]:
    """Give every prompt every column, so that a scorer sees the same ones in each batch."""
    names = dict.fromkeys(name for row in rows for name in row.prompt.columns)
    return [
        _Row(
            row.line,
            Prompt(row.prompt.id, row.prompt.text, {n: row.prompt.columns.get(n) for n in names}),
            row.split,
        )
        for row in rows
    ]


def _by_field(rows: Sequence[_Row]) -> dict[str, list[Prompt]]:
    return {name: [row.prompt for row in rows if row.split == name] for name in SPLIT_NAMES}


def _by_share(rows: Sequence[_Row], splits: SplitsSpec) -> dict[str, list[Prompt]]:
    groups = _same(rows)
    # A keyed hash, not a shuffle: the same order on every Python version.
    order = sorted(
        groups, key=lambda key: hashlib.sha256(f"{splits.seed}\n{key}".encode()).digest()
    )
    counts = _counts(len(order), [getattr(splits, name) for name in SPLIT_NAMES])
    divided: dict[str, list[Prompt]] = {}
    start = 0
    for name, count in zip(SPLIT_NAMES, counts, strict=True):
        keys = order[start : start + count]
        divided[name] = [row.prompt for key in keys for row in groups[key]]
        start += count
    return divided


def _counts(total: int, shares: Sequence[float]) -> list[int]:
    """Divide ``total`` by ``shares`` of their sum; the largest remainders round up."""
    exact = [total * share / sum(shares) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _size_problems(
    by_split: Mapping[str, Sequence[Prompt]], splits: SplitsSpec | None
) -> list[str]:
    problems: list[str] = []
    for name in SPLIT_NAMES:
        num_distinct = len({_key(prompt.text) for prompt in by_split[name]})
        if num_distinct < MIN_PROMPTS:
            how = (
                "more lines need this split"
                if splits is None
                else f"give more prompts or a larger task.splits.{name} (now {getattr(splits, name):g})"
            )
            problems.append(
                f"split {name} has {num_distinct} distinct prompt(s), at least {MIN_PROMPTS} are needed: {how}"
            )
    return problems

"""The rows of a source in, prompts with their columns and split out, or what is wrong with each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from kltune.spec.prompts import RESERVED, SPLIT_NAMES, PromptsSpec, SplitNames
from kltune.tasks.prompts_files import RawRow, Table, kind
from kltune.tasks.protocol import Prompt

_ROLES_THAT_ANSWER: Final = ("assistant", "model")


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and where it stands."""

    label: str
    prompt: Prompt
    split: str | None
    """``train``, ``select`` or ``test``, or a name that the source gives; None: it says nothing."""


def parse_table(table: Table, spec: PromptsSpec) -> tuple[list[Row], list[str]]:
    """Make prompts of every row, with every column (None where a row lacks it); the rest are told."""
    absent = _absent_columns(table, spec)
    if absent:
        return [], absent
    rows: list[Row] = []
    problems: list[str] = []
    split_column = column_of_split(spec)
    for raw in table.rows:
        made = _parsed(raw, spec, split_column)
        if isinstance(made, str):
            problems.append(f"{table.word} {raw.label}: {made}")
        else:
            rows.append(made)
    names = dict.fromkeys(name for row in rows for name in row.prompt.columns)
    return [_with_all(row, names) for row in rows], problems


def column_of_split(spec: PromptsSpec) -> str:
    """The column that names a row's split, if there is one."""
    if isinstance(spec.split, SplitNames):
        return spec.split.column or "split"
    return spec.split or "split"


def words_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation in words: what the user says where that is all, else every turn with its role."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        return messages[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _start(text: str, words: int | None) -> str:
    """The first ``words`` words as they are written, spaces between them included."""
    if words is None:
        return text
    found = re.match(rf"\s*(?:\S+\s+){{0,{words - 1}}}\S+", text)
    return text if found is None else found.group()


def _absent_columns(table: Table, spec: PromptsSpec) -> list[str]:
    """Columns that the spec names and no row has."""
    there = dict.fromkeys(name for raw in table.rows for name in raw.fields)
    if not table.rows:
        return []
    wanted = {f"columns.{name}": column for name, column in spec.columns.items()}
    if spec.prompt != "prompt":
        wanted["prompt"] = spec.prompt
    if isinstance(spec.split, str):
        wanted["split"] = spec.split
    if isinstance(spec.split, SplitNames) and not table.parts:
        wanted["split.column"] = column_of_split(spec)
    listed = ", ".join(there)
    told = [
        f"{field}: there is no column {column!r} (columns: {listed})"
        for field, column in wanted.items()
        if column not in there
    ]
    if spec.prompt == "prompt" and "prompt" not in there:
        told.insert(
            0,
            f"field 'prompt' is missing (fields here: {listed}): "
            "give {path: ..., prompt: COLUMN} as task.prompts",
        )
    return told


def _parsed(raw: RawRow, spec: PromptsSpec, split_column: str) -> Row | str:
    """Turn one row into a prompt, or say what is wrong with it."""
    fields = raw.fields
    problem = _field_problem(raw, spec, split_column)
    if problem is not None:
        return problem
    given = fields[spec.prompt]
    messages = () if isinstance(given, str) else tuple(cast("list[dict[str, Any]]", given))
    text = _start(given, spec.words) if isinstance(given, str) else words_of(messages)
    used = {spec.prompt, *spec.columns.values(), "id"}
    split = raw.part
    if split is None and split_column not in spec.columns.values():
        split = fields.get(split_column)
        used.add(split_column)
    kept = {name: value for name, value in fields.items() if name not in used}
    renamed = {name: fields.get(column) for name, column in spec.columns.items()}
    taken = [name for name in (*kept, *renamed) if name in RESERVED]
    if taken:
        return f"field {taken[0]!r} has a name that scorers use; rename it"
    twice = [name for name in renamed if name in kept]
    if twice:
        return f"columns.{twice[0]}: the source has another column of that name; rename that too"
    own_id = raw.id if "id" not in fields else str(fields["id"])
    return Row(raw.label, Prompt(own_id, text, {**kept, **renamed}, messages), split)


def _field_problem(raw: RawRow, spec: PromptsSpec, split_column: str) -> str | None:
    fields, own_id = raw.fields, raw.fields.get("id", "-")
    if spec.prompt not in fields:
        return f"field {spec.prompt!r} is missing (fields here: {', '.join(fields) or 'none'})"
    prompt = fields[spec.prompt]
    if spec.words is not None and isinstance(prompt, list):
        return f"field {spec.prompt!r} is a list of messages, which task.prompts.words can't cut"
    problem = (
        _messages_problem(cast("list[Any]", prompt))
        if isinstance(prompt, list)
        else _text_problem(prompt)
    )
    if problem is not None:
        return f"field {spec.prompt!r} {problem}"
    if not isinstance(own_id, str | int) or isinstance(own_id, bool) or own_id == "":
        return f"field 'id' must be text or a whole number (got {kind(own_id)})"
    if raw.part is None and split_column in fields and not isinstance(spec.split, SplitNames):
        split = fields[split_column]
        if split not in SPLIT_NAMES and split_column not in spec.columns.values():
            listed = ", ".join(SPLIT_NAMES)
            return f"field {split_column!r} must be one of {listed} (got {split!r})"
    return None


def _text_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return f"must be text (got {kind(value)})"
    if not value.strip():
        return "is empty"
    return None if _is_unicode(value) else "holds half of a surrogate pair, which is no character"


def _messages_problem(messages: Sequence[Any]) -> str | None:
    """A conversation must be turns of text, up to the question."""
    if not all(_is_message(message) for message in messages):
        return "must be text (got a list): or a list of messages {role: ..., content: TEXT}"
    if not messages:
        return "is empty"
    if messages[-1]["role"] in _ROLES_THAT_ANSWER:
        return (
            f"ends with the turn of the {messages[-1]['role']}, which leaves nothing to answer: "
            "give the messages up to the question"
        )
    contents = [_text_problem(message["content"]) for message in messages]
    return contents[-1] or next(
        (p for p in contents if p and p != "is empty"), None
    )  # an empty system message does no harm


def _is_message(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    fields = cast("dict[str, Any]", message)
    return all(isinstance(fields.get(name), str) for name in ("role", "content"))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_all(row: Row, names: Mapping[str, None]) -> Row:
    """Give a prompt every column, so that a scorer sees the same ones in each batch."""
    columns = {name: row.prompt.columns.get(name) for name in names}
    return replace(row, prompt=replace(row.prompt, columns=columns))

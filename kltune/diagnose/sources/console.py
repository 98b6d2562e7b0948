"""Text that a trainer printed in, its rows out: verl's console lines and the dicts that TRL prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Final, cast

from kltune.diagnose.sources.jsonl import add_row
from kltune.diagnose.sources.raw import Merger, RawRun, number
from kltune.errors import StudyError

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_VERL: Final = re.compile(r"(?:^|[\s)\]:])step:(\d+) - (\S.*)$")
_NUMPY: Final = re.compile(r"(?:np|numpy)\.\w+\((.*)\)$|tensor\((.*?)(?:,.*)?\)$")
_DICT: Final = re.compile(r"\{'[^']+':.*\}")
_DICT_LIMIT: Final = 100_000


def read_console(path: Path) -> RawRun:
    """Read what a trainer printed, streamed; other output between the lines does no harm.

    verl: ``step:1 - actor/kl_loss:0.001 - ...`` (also behind Ray's ``(TaskRunner pid=1)``,
    in colour, and with ``np.float64(0.5)`` for a number). TRL: ``{'loss': 0.0, 'kl': 0.01}``,
    which has no step: the number of the line among its like stands for it. Raises
    `StudyError` where there is neither.
    """
    merger, counts = Merger(), {"verl": 0, "trl": 0}
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            line = _COLOUR.sub("", text).strip()
            if (match := _VERL.search(line)) is not None:
                counts["verl"] += 1
                merger.add(int(match[1]), _pairs(match[2], merger))
            elif (row := _printed_dict(line)) is not None:
                counts["trl"] += 1
                add_row(merger, row)
    rows = merger.rows()
    if not rows:
        raise StudyError(
            f"{path}: no log that is known (looked for lines like `step:1 - actor/kl_loss:0.001` of "
            "verl, printed dicts of TRL, JSON lines, and a table with a header)"
        )
    is_verl = counts["verl"] > 0
    kind = "verl console log" if is_verl else "printed log of a Hugging Face trainer"
    return merger.run(str(path), kind, "verl" if is_verl else "")


def has_console_lines(text: str) -> bool:
    """Whether the beginning of a file looks like what `read_console` takes."""
    lines = [_COLOUR.sub("", line).strip() for line in text.splitlines()]
    return any(_VERL.search(line) or _DICT.search(line) for line in lines)


def _pairs(text: str, merger: Merger) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(" - "):
        # A name may hold colons, a number none.
        name, _, value = part.strip().rpartition(":")
        match = _NUMPY.match(value)
        read = number((match[1] or match[2]) if match else value)
        if not name or read is None:
            merger.complain("part", "of lines that could not be read", repr(part.strip()[:60]))
        else:
            found[name] = read
    return found


def _printed_dict(line: str) -> dict[str, Any] | None:
    if len(line) > _DICT_LIMIT or (match := _DICT.search(line)) is None:
        return None
    # Python prints nan and inf as words that are no literals.
    text = re.sub(r"(?<=: )(-?(?:nan|inf))(?=[,}])", r"'\1'", match[0])
    try:
        found: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    row = cast("dict[object, object]", found) if isinstance(found, dict) else {}
    named = {str(key): value for key, value in row.items()}
    # The summary at the end of training is not of a step.
    return None if not named or "train_runtime" in named else named

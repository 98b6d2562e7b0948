"""A file or text of somebody's in, its YAML value out: plain values alone, within bounds of time and memory.

Tags that name Python objects are refused (ruamel's safe loader), and so are files too large to be settings and
references (``*name``) that would unfold into millions of values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

MOST_BYTES: Final = 256 << 10
"""Of a file of settings; reading as much takes some 2 s. The largest spec that comes with kltune has 4 kB."""
MOST_VALUES: Final = 100_000
"""Keys and values that a text may unfold into."""


def read_bounded(path: Path) -> bytes:
    """The bytes of a file of settings.

    Raises:
        ValueError: it is larger than `MOST_BYTES`; no more than that was read.
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"is larger than {MOST_BYTES >> 10} KiB, which no file of settings is")
    return data


def parse_yaml(text: str) -> Any:
    """The value of one YAML 1.2 document.

    Raises:
        ValueError: it unfolds into too much, is nested too deeply, or holds a number of thousands of digits.
        ruamel.yaml.error.YAMLError: it is no YAML of plain values.
    """
    try:
        if "*" in text and "&" in text:
            _refuse_bombs(text)
        return YAML(typ="safe", pure=True).load(text)
    except RecursionError:
        raise ValueError("not YAML that can be read: too deeply nested") from None


def _refuse_bombs(text: str) -> None:
    """Count before anything is unfolded: merging keys (``<<``) would do so while it is read."""
    # ruamel's stubs leave the argument open.
    root = cast("Node | None", YAML(typ="safe", pure=True).compose(text))  # pyright: ignore[reportUnknownMemberType]
    if root is not None and _size(root, {}) > MOST_VALUES:
        raise ValueError(
            f"its references (*name) unfold into more than {MOST_VALUES} values, or into themselves"
        )


def _size(node: Node, known: dict[int, int]) -> int:
    """Values that a node unfolds into; one inside itself has no end."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MOST_VALUES + 1  # while it is being counted
    total = 1
    if isinstance(node, SequenceNode):
        total += sum(_size(item, known) for item in cast("list[Node]", node.value))
    elif isinstance(node, MappingNode):
        for key, value in cast("list[tuple[Node, Node]]", node.value):
            total += _size(key, known) + _size(value, known)
    known[id(node)] = total
    return total

"""YAML of somebody's is read within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml.error import YAMLError

from kltune.spec.yaml_text import MOST_BYTES, parse_yaml, read_bounded


def test_references_of_ordinary_size_are_read() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {
        "a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2},
    }  # fmt: skip


def test_what_unfolds_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="unfold into more than"):
        parse_yaml("a: &a [*a]")


def test_objects_are_refused() -> None:
    with pytest.raises(YAMLError):
        parse_yaml("!!python/object/apply:os.getpid []")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * MOST_BYTES)
    assert len(read_bounded(path)) == MOST_BYTES
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ValueError, match="larger than 256 KiB"):
        read_bounded(path)

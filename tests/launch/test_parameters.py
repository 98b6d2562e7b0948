from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.parameters import count_parameters
from kltune.spec.model import ModelSpec


def folder_with(path: Path, **shapes: list[int]) -> Path:
    """A model folder whose weights are a header alone."""
    path.mkdir()
    (path / "config.json").write_text("{}", encoding="utf-8")
    tensors = {name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def test_parameters_are_counted_in_the_header(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "model", a=[3, 5], b=[7])
    assert count_parameters(ModelSpec(base=str(folder))) == 22


def test_the_built_in_sizes_differ_by_about_four() -> None:
    small, medium, large = (
        count_parameters(ModelSpec(base=f"builtin:kitchen{end}"))
        for end in ("-small", "", "-large")
    )
    assert medium == 351_264
    assert 3.5 < medium / small < 4.5
    assert 3.5 < large / medium < 4.5


@pytest.mark.parametrize("base", ["someone/some-model", "/no/such/folder/at/all"])
def test_what_can_not_be_counted_says_what_to_give(base: str) -> None:
    with pytest.raises(SpecError, match="--parameters, one number for each STUDY"):
        count_parameters(ModelSpec(base=base))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "model", a=[3])
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(SpecError, match="is no safetensors file"):
        count_parameters(ModelSpec(base=str(folder)))

"""A spec's model in, its number of parameters out: read from the files' headers, no weight is loaded."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any, Final

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.sources import resolve_model

_LONGEST_HEADER: Final = 100_000_000
_ADVICE: Final = "say how many by --parameters, one number for each STUDY"


def count_parameters(model: ModelSpec) -> int:
    """Parameters of the base, shared ones once; adapters are not counted.

    Raises:
        SpecError: they can't be counted here (a hub id, a model that is gone, other formats).
    """
    try:
        source = resolve_model(model.base, model.gguf_file, Path)
    except (SpecError, EnvironmentMissingError) as error:
        raise SpecError(f"{error}; to compare sizes all the same, {_ADVICE}") from error
    folder = Path(source.pretrained)
    if source.kind == "hub":
        raise SpecError(
            f"model.base: {model.base} lies on the hub, so its size isn't known here: {_ADVICE}"
        )
    if source.gguf_file is not None:
        return _of_gguf(folder / source.gguf_file)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise SpecError(
            f"model.base: {folder} holds no safetensors to count parameters in: {_ADVICE}"
        )
    return sum(_of_safetensors(file) for file in files)


def _of_safetensors(path: Path) -> int:
    """Sum of the shapes in the header: its length in 8 bytes, then JSON."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        text = file.read(length) if 0 < length <= _LONGEST_HEADER else b""
    try:
        header: dict[str, Any] = json.loads(text)
        return sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"model.base: {path} is no safetensors file: {_ADVICE}") from error


def _of_gguf(path: Path) -> int:
    from gguf import GGUFReader

    return sum(int(tensor.n_elements) for tensor in GGUFReader(str(path)).tensors)

"""A model that is not loaded yet in, a refusal out if its weights would not fit the memory that is free.

Counted from the configuration (a model without storage), so that nothing is downloaded or read but that; a GGUF,
whose configuration takes seconds to read, by the size of its file.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.base_dtype import base_dtype

if TYPE_CHECKING:
    from kltune.trainer.sources import ModelSource

_LARGEST_GGUF_WEIGHT: Final = 2
"""Bytes of a weight in a GGUF: 2 in half precision, about 0.6 in 4 bits; so a file of N bytes holds N / 2 at least."""
_FULL_COPIES: Final = 5
"""finetune: full keeps the base, the policy, its gradient and AdamW's two moments."""

_log = logging.getLogger(__name__)


def refuse_too_large(spec: ModelSpec, source: ModelSource, device: torch.device) -> None:
    """See to it that the weights fit what is free on the device; what a step takes beside them is not counted.

    Raises:
        SpecError: they don't; both sizes are named, and what would be smaller.
    """
    weights, is_least = num_weights(spec, source)
    copies = _FULL_COPIES if spec.finetune == "full" else 1
    dtype = base_dtype(spec, device)
    needed, free = weights * copies * dtype.itemsize, free_bytes(device)
    if needed <= free:
        return
    least = "at least " if is_least else ""
    kept = (
        ", five times over (finetune: full keeps policy, gradient and moments)"
        if copies > 1
        else ""
    )
    smaller = "a smaller model"
    if copies > 1:
        smaller += ", or finetune: lora"
    elif dtype == torch.float32 and needed <= 2 * free:
        smaller += f", or model.dtype: bfloat16 ({_gigabytes(needed / 2)})"
    raise SpecError(
        f"model.base: {spec.base!r} holds {least}{weights:,} weights, which take {_gigabytes(needed)} in "
        f"{str(dtype).removeprefix('torch.')}{kept}; {_gigabytes(free)} of memory are free on {device.type}: give {smaller}"
    )


def num_weights(spec: ModelSpec, source: ModelSource) -> tuple[int, bool]:
    """Weights of the model, tied ones once, and whether that is a lower bound; 0 where they can't be counted."""
    if source.gguf_file is not None:
        path = Path(source.pretrained) / source.gguf_file
        return (path.stat().st_size // _LARGEST_GGUF_WEIGHT if path.is_file() else 0), True
    trust = spec.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(
            source.pretrained, trust_remote_code=trust, **source.flags
        )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    except (OSError, ValueError, ImportError, RuntimeError, AttributeError, TypeError) as error:
        # Loading itself says what is wrong, in better words; an estimate is no reason to stop.
        _log.debug("weights of %s not counted: %s", spec.base, error)
        return 0, True
    return sum(weight.numel() for weight in model.parameters()), False


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _gigabytes(size: float) -> str:
    number = size / 1e9
    return f"{number:.3g} GB" if number < 1000 else f"{number:,.0f} GB"

"""What the spec asks of the base's precision and a device in, the type of its weights out."""

from __future__ import annotations

import torch

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec


def base_dtype(spec: ModelSpec, device: torch.device) -> torch.dtype:
    """float32 or bfloat16.

    Raises:
        SpecError: bfloat16 on a CUDA device that only emulates it, where it is slower than float32 and less exact.
    """
    is_native = device.type == "cuda" and computes_bfloat16(device)
    if spec.dtype == "auto":
        return torch.bfloat16 if is_native and spec.finetune == "lora" else torch.float32
    if spec.dtype == "bfloat16" and device.type == "cuda" and not is_native:
        raise SpecError(
            f"model.dtype: {torch.cuda.get_device_name(device)} has no bfloat16 arithmetic of its own (got bfloat16): "
            "use float32 or auto"
        )
    return torch.float32 if spec.dtype == "float32" else torch.bfloat16


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a CUDA device multiplies bfloat16 in hardware (compute capability 8.0 and above; ROCm does)."""
    if torch.version.hip is not None:
        return True
    return torch.cuda.get_device_capability(device)[0] >= 8

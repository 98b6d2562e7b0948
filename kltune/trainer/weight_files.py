"""What loading a model found in its files in; a refusal of weights that are absent or not finite out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from kltune.errors import SpecError

_SHOWN: Final = 3


def refuse_missing(base: str, model: nn.Module, found: Mapping[str, Any]) -> None:
    """See to it that every weight came from the files: transformers draws the others at random.

    ``found``: transformers' ``output_loading_info``. Buffers are computed, and a weight that is tied to one from the
    files has its value.

    Raises:
        SpecError: naming some of those that did not.
    """
    absent = {str(name) for name in found["missing_keys"]}
    # (name, shape in the file, shape in the model)
    absent |= {str(entry[0]) for entry in found["mismatched_keys"]}
    weights = dict(model.named_parameters(remove_duplicate=False))
    read = {id(weight) for name, weight in weights.items() if name not in absent}
    drawn = sorted(n for n in absent & set(weights) if id(weights[n]) not in read)
    if drawn:
        raise SpecError(
            f"model.base: the files of {base!r} lack {len(drawn)} of the {len(weights)} weights that its config asks "
            f"for ({listed(drawn)}); they would be random: give the config that belongs to the weights"
        )


def refuse_not_finite(model: nn.Module) -> None:
    """See to it that no weight is NaN or infinite.

    Raises:
        SpecError: naming one such tensor.
    """
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.numel() == 0:
            continue
        # Both carry a NaN on, and nothing as large as the weight is made.
        if not bool(torch.isfinite(torch.stack(torch.aminmax(weight.detach()))).all()):
            count = int((~torch.isfinite(weight)).sum())
            raise SpecError(
                f"model.base: its weights are not finite: {name} holds {count:,} NaN or infinite number(s) of "
                f"{weight.numel():,}"
            )


def without_place(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the weights in the files that the model has no place for."""
    return tuple(sorted(str(name) for name in found["unexpected_keys"]))


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Some of them."""
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

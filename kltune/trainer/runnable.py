"""A causal language model in, its decoder body out; a refusal of models whose numbers our loops would get wrong.

Decoding repeats the key-value cache of a prompt once per completion and drops finished rows; scoring pads on
the left. A model that keeps more than keys and values, or that reads its padding, is refused: by its kind
where that is known, and by its own numbers on two short texts in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from kltune.errors import SpecError
from kltune.trainer.encode import positions_of, refuse_unknown

if TYPE_CHECKING:
    from kltune.trainer.model import LoadedModel

TOLERANCE: Final = 1e-3
"""Largest difference of hidden states, relative to the largest of them, in float32."""
ROUNDED_TOLERANCE: Final = 0.5
"""The same in bfloat16, where a router may choose another expert by rounding alone."""
_WINDOWS: Final = ("sliding_window", "window_size", "attention_window_size", "attention_chunk_size")
_NUM_TOKENS: Final = 6
_PADDING: Final = 3
_KEPT: Final = 4
"""Tokens that are read at once before the rest is read one by one."""


def body_of(model: PreTrainedModel) -> nn.Module:
    """Token ids to hidden states: the model without its head; of one that sees as well, its language part alone.

    Raises:
        SpecError: the model names no such part.
    """
    is_text_alone = model.config.get_text_config() is model.config
    body = model.base_model if is_text_alone else model.get_decoder()
    if body is model:  # its class calls its base by a name that it has not
        body = getattr(model, "model", None)
    if body is model or not isinstance(body, nn.Module):
        raise SpecError(
            f"model.base: {type(model).__name__} has no decoder apart from its head, so hidden states can't be had"
        )
    return body


def known_ids(model: PreTrainedModel) -> int:
    """Ids that a model can both read and write."""
    parts = (model.get_input_embeddings(), model.get_output_embeddings())
    return min(
        int(weight.shape[0])
        for part in parts
        if (weight := getattr(part, "weight", None)) is not None
    )


def refuse_foreign_ids(
    model: PreTrainedModel, tokenizer: Any, stop_ids: Sequence[int], pad_id: int
) -> None:
    """See to it that the model has the ids that end and pad a text.

    Raises:
        SpecError: it lacks one.
    """
    known = known_ids(model)
    if pad_id >= known and pad_id not in stop_ids:
        raise SpecError(
            f"model.base: the tokenizer pads with id {pad_id}, which the model's vocabulary of "
            f"{known} has not; nothing is resized, so give a tokenizer that fits the model"
        )
    refuse_unknown(tokenizer, stop_ids, known, "the end of a completion (eos_token_id)")


def refuse_stateful(model: PreTrainedModel) -> None:
    """See to it that all a model remembers of a text are keys and values.

    Raises:
        SpecError: it has recurrent, convolutional or linear-attention layers.
    """
    config: Any = model.config.get_text_config()
    is_stateful = bool(getattr(model, "_is_stateful", False))
    if not is_stateful:
        layers = DynamicCache(config=config).layers
        is_stateful = any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)
    if is_stateful:
        raise SpecError(
            f"model.base: {type(model).__name__} has recurrent or linear-attention layers, whose state can't be "
            "repeated for each completion of a prompt here: give a model with attention alone (Llama, Qwen2, Qwen3, "
            "Gemma, Mistral, Phi, GPT-2, GPT-NeoX, OPT, Falcon, MPT, Mixtral and their like)"
        )


def has_full_attention_only(config: Any) -> bool:
    """Whether a query sees every key before it, at no cost of distance: no sliding window, no ALiBi."""
    if getattr(config, "alibi", False):
        return False
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    if kinds is not None:
        return all(kind in ("full_attention", "global") for kind in kinds)
    return all(getattr(config, name, None) is None for name in _WINDOWS)


@torch.no_grad()
def refuse_unfaithful(loaded: LoadedModel) -> None:
    """See to it that left padding changes nothing and that decoding from a cache gives what one forward gives.

    Raises:
        SpecError: saying which of the two differs.
    """
    ids = (torch.arange(_NUM_TOKENS, device=loaded.device) * 7 + 2)[None] % loaded.num_ids
    padding = ids.new_full((1, _PADDING), loaded.pad_id)
    padded = torch.cat([padding, ids], dim=1)
    mask = torch.ones_like(padded)
    mask[:, :_PADDING] = 0
    alone = loaded.hidden(ids, torch.ones_like(ids), positions_of(torch.ones_like(ids)))
    whole = loaded.hidden(padded, mask, positions_of(mask))[:, _PADDING:]
    _compare(loaded, alone, whole, "gives a text other numbers when padding stands before it")
    read = _PADDING + _KEPT
    cache = DynamicCache(config=loaded.model.config)
    pieces = [loaded.hidden(padded[:, :read], mask[:, :read], positions_of(mask[:, :read]), cache)]
    for end in range(read + 1, padded.shape[1] + 1):
        position = positions_of(mask[:, :end])[:, -1:]
        seen = loaded.decode_mask(mask[:, :end])
        pieces.append(loaded.hidden(padded[:, end - 1 : end], seen, position, cache))
    decoded = torch.cat(pieces, dim=1)[:, _PADDING:]
    _compare(loaded, whole, decoded, "gives other numbers when it reads a text token by token")


def _compare(loaded: LoadedModel, wanted: Tensor, got: Tensor, fault: str) -> None:
    is_rounded = torch.bfloat16 in (loaded.matmul_dtype, loaded.head.weight.dtype)
    tolerance = ROUNDED_TOLERANCE if is_rounded else TOLERANCE
    largest = float(wanted.float().abs().max())
    gap = float((wanted.float() - got.float()).abs().max()) / largest if largest else 0.0
    if not gap <= tolerance:
        raise SpecError(
            f"model.base: {type(loaded.model).__name__} {fault} (hidden states differ by {gap:.2g} of their "
            "largest), so its log-probs could not be trusted"
        )

"""Queries, keys and values of packed tokens in, attention's output of each token out.

Prompts see themselves; a completion sees its prompt, whose keys are computed once per
group, and itself. Shapes: M tokens, H query heads, J key-value heads, G = H / J, d head
width, P prompts, L longest prompt, R completions, T longest completion.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import CausalBias, causal_lower_right

from kltune.trainer.fused.packing import Packed


def attend(query_MHd: Tensor, kv_M2Jd: Tensor, packed: Packed) -> Tensor:
    """``[M, H, d]`` queries and ``[M, 2J, d]`` keys, then values, to ``[M, H, d]``."""
    cut = packed.num_prompt_tokens
    prompts, completions = packed.prompts, packed.completions
    query_PLHd = prompts.ragged.pad(query_MHd[:cut])
    kv_PL2Jd = prompts.ragged.pad(kv_M2Jd[:cut])
    # Right-padded and causal: no token sees padding.
    seen_PLHd = _grouped(query_PLHd, kv_PL2Jd, None)
    parts = [prompts.ragged.unpad(seen_PLHd)]
    if packed.sees_R1TS is not None:
        kv_R = torch.cat([prompts.to_rows(kv_PL2Jd), completions.pad(kv_M2Jd[cut:])], dim=1)
        query_RTHd = completions.pad(query_MHd[cut:])
        # Where no prompt is padded the mask is a plain diagonal, which fast kernels know without one.
        is_even = query_MHd.is_cuda and prompts.ragged.places is None
        sees = _lower_right(query_RTHd, kv_R) if is_even else packed.sees_R1TS
        parts.append(completions.unpad(_grouped(query_RTHd, kv_R, sees)))
    return torch.cat(parts)


def _lower_right(query: Tensor, keys_values: Tensor) -> CausalBias:
    return causal_lower_right(query.shape[1], keys_values.shape[1])


def _grouped(query: Tensor, keys_values: Tensor, sees: Tensor | None) -> Tensor:
    """``[rows, T, H, d]`` and ``[rows, S, 2J, d]`` to ``[rows, T, H, d]``; without ``sees``: causal."""
    keys, values = keys_values.transpose(1, 2).chunk(2, dim=1)
    length, group = query.shape[1], query.shape[2] // keys.shape[1]
    if group == 1 or sees is None or isinstance(sees, CausalBias):
        out = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            keys,
            values,
            attn_mask=sees,
            is_causal=sees is None,
            enable_gqa=group > 1,
        )
        return out.transpose(1, 2)
    # The heads that share keys as further queries of one head: nothing is repeated.
    folded = query.unflatten(2, (-1, group)).permute(0, 2, 3, 1, 4).flatten(2, 3)
    mask = sees.expand(-1, group, -1, -1).flatten(1, 2).unsqueeze(1)
    out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
    return out.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4).flatten(2, 3)

"""Completions with padding in, one row of tokens without it out: prompts once per group, valid tokens only.

The tokens that a forward needs: every token of each different prompt, then, of every
completion, all valid tokens but the last (nothing is predicted from it). The last token
of a prompt predicts the first of each of its completions. Shapes: P different prompts, L
longest prompt, R completions, T longest completion, M tokens in all, C any width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kltune.trainer.encode import PaddedPrompts


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of unequal length, stored one after another: where each token stands in a padded ``[rows, width]``."""

    lengths: Tensor
    """``[rows]``."""
    width: int
    """Longest row."""
    places: Tensor | None
    """Index into the flat padded layout of each token, in order; None: nothing is padding."""
    sources: Tensor | None
    """Index into the tokens of each place of the padded layout; padding reads token 0."""

    @classmethod
    def of(cls, lengths: Tensor) -> Ragged:
        """Rows of these lengths, right-padded to the longest."""
        width = int(lengths.max()) if len(lengths) else 0
        columns = torch.arange(width, device=lengths.device)
        is_valid = columns < lengths[:, None]
        if bool(is_valid.all()):
            return cls(lengths, width, None, None)
        places = is_valid.flatten().nonzero()[:, 0]
        sources = torch.zeros(is_valid.numel(), dtype=torch.long, device=lengths.device)
        sources[places] = torch.arange(len(places), device=lengths.device)
        return cls(lengths, width, places, sources)

    @property
    def num_tokens(self) -> int:
        """Tokens without padding."""
        return len(self.lengths) * self.width if self.places is None else len(self.places)

    def pad(self, tokens: Tensor) -> Tensor:
        """``[tokens, ...] -> [rows, width, ...]``; what stands at padding must not be used."""
        shape = (len(self.lengths), self.width, *tokens.shape[1:])
        if self.places is None or self.sources is None:
            return tokens.view(shape)
        return _Pad.apply(tokens, self.sources, self.places).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """``[rows, width, ...] -> [tokens, ...]``."""
        flat = padded.flatten(0, 1)
        return flat if self.places is None else _Unpad.apply(flat, self.places)


class _Pad(torch.autograd.Function):
    """A gather whose gradient is a gather too: padding gives none back."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, sources: Tensor, places: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(places)
        return tokens.index_select(0, sources)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (places,) = ctx.saved_tensors
        return grad.index_select(0, places), None, None


class _Unpad(torch.autograd.Function):
    """Padding gets the gradient 0."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, places: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(places)
        ctx.num_places = flat.shape[0]
        return flat.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (places,) = ctx.saved_tensors
        back = grad.new_zeros(ctx.num_places, *grad.shape[1:])
        back[places] = grad
        return back, None


@dataclass(frozen=True, slots=True)
class Prompts:
    """Different prompts, right-padded, and which completion belongs to which."""

    ids_PL: Tensor
    ragged: Ragged
    of_row_R: Tensor
    """Prompt of each completion."""
    group: int | None
    """Completions per prompt where they lie group by group in order; None: any order."""

    def to_rows(self, values: Tensor) -> Tensor:
        """What belongs to each prompt, once per completion: ``[P, ...] -> [R, ...]``."""
        if self.group is None:
            return values.index_select(0, self.of_row_R)
        shape = (values.shape[0], self.group, *values.shape[1:])
        return values.unsqueeze(1).expand(shape).flatten(0, 1)


def find_prompts(prompts: PaddedPrompts) -> Prompts:
    """Each different prompt of left-padded ``prompts`` once, in the order of its first row."""
    lengths_R = prompts.mask.sum(-1)
    num_rows, width = prompts.ids.shape
    key = prompts.ids.masked_fill(prompts.mask == 0, -1)
    is_new_R = torch.ones(num_rows, dtype=torch.bool, device=key.device)
    is_new_R[1:] = (key[1:] != key[:-1]).any(-1)
    first = is_new_R.nonzero()[:, 0]
    of_row_R = is_new_R.cumsum(0) - 1
    # The same prompt in a row counts once; one that comes back later is simply read again.
    counts = torch.bincount(of_row_R, minlength=len(first))
    group = int(counts[0]) if bool((counts == counts[0]).all()) else None
    lengths_P = lengths_R[first]
    longest = int(lengths_P.max())
    columns = torch.arange(longest, device=key.device) + (width - lengths_P)[:, None]
    ids_PL = prompts.ids[first].gather(1, columns.clamp(max=width - 1))
    return Prompts(ids_PL, Ragged.of(lengths_P), of_row_R, group)


@dataclass(frozen=True, slots=True)
class Packed:
    """Tokens of one forward: those of the prompts, then those of the completions."""

    prompts: Prompts
    completions: Ragged
    """Of the tokens that go in: one fewer than are predicted."""
    ids_M: Tensor
    positions_M: Tensor
    sees_R1TS: Tensor | None
    """Which keys (prompt right-padded, then completion) a completion's token sees; None: no completion has two tokens."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompts."""
        return self.prompts.ragged.num_tokens


def pack(prompts: Prompts, ids_RT: Tensor, mask_RT: Tensor) -> Packed:
    """``ids_RT`` and ``mask_RT``: completions, valid up to their first stop token (at least one token each)."""
    of_prompts, device = prompts.ragged, ids_RT.device
    completions = Ragged.of(mask_RT.sum(-1) - 1)
    wide = completions.width
    columns_L = torch.arange(of_prompts.width, device=device).expand(len(of_prompts.lengths), -1)
    prompt_lengths_R = prompts.to_rows(of_prompts.lengths)
    columns_RT = torch.arange(wide, device=device) + prompt_lengths_R[:, None]
    parts = [(of_prompts, prompts.ids_PL, columns_L)]
    sees = None
    if wide:
        parts.append((completions, ids_RT[:, :wide], columns_RT))
        steps = torch.arange(wide, device=device)
        sees_prompt_RL = columns_L[:1] < prompt_lengths_R[:, None]
        sees = torch.cat(
            [
                sees_prompt_RL[:, None].expand(-1, wide, -1),
                (steps <= steps[:, None]).expand(len(ids_RT), -1, -1),
            ],
            dim=-1,
        )[:, None]
    ids_M = torch.cat([ragged.unpad(ids) for ragged, ids, _ in parts])
    positions_M = torch.cat([ragged.unpad(columns) for ragged, _, columns in parts])
    return Packed(prompts, completions, ids_M, positions_M, sees)


def predicting(packed: Packed, states_MD: Tensor, width: int) -> Tensor:
    """Hidden states that predict each token of a completion: ``[M, D] -> [R, width, D]``, 0 beyond its end."""
    prompts, completions = packed.prompts, packed.completions
    cut = packed.num_prompt_tokens
    ends = prompts.ragged.lengths.cumsum(0) - 1
    first_R1D = prompts.to_rows(states_MD[:cut].index_select(0, ends))[:, None]
    if not completions.width:
        padded = first_R1D
    else:
        padded = torch.cat([first_R1D, completions.pad(states_MD[cut:])], dim=1)
    missing = width - padded.shape[1]
    return torch.nn.functional.pad(padded, (0, 0, 0, missing)) if missing else padded

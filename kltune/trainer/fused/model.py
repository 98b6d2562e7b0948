"""A loaded model of a known family, ready to run with or without adapters by our own forward.

Merged weights are written again only when the adapters have changed. Shapes: K slots, N
sequences per slot, L prompt tokens, T completion tokens, D width, P parameters of one adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.fused.blocks import Blocks, Joined, find_blocks
from kltune.trainer.fused.decode import Decoder
from kltune.trainer.fused.forward import forward
from kltune.trainer.fused.linear import (
    BaseLinears,
    BranchLinears,
    Linears,
    MergedLinears,
    Pairs,
)
from kltune.trainer.fused.packing import find_prompts, pack, predicting
from kltune.trainer.fused.static import Shape, StaticDecoder
from kltune.trainer.head import Head
from kltune.trainer.lora import AdapterStack, AdapterView

TOLERANCE = 1e-3
"""Largest difference from the model's own hidden states, relative to the largest of them, float32."""


MERGED_UP_TO = 32_000_000
"""Weights in linear layers up to which a second, merged copy is kept."""


class FusedModel:
    """The blocks of a model and the arithmetic that runs them."""

    def __init__(
        self,
        blocks: Blocks,
        dtype: torch.dtype,
        head: tuple[Tensor, Tensor | None] | None = None,
    ) -> None:
        """``dtype``: of the matrix products; a copy of the base in it is made if it is not the base's own.

        ``head``: weight ``[V, D]`` and bias, for :meth:`draw_all` alone.
        """
        self.blocks, self.dtype = blocks, dtype
        self._head = head and (head[0].to(dtype), None if head[1] is None else head[1].to(dtype))
        self._decoders: dict[Shape, StaticDecoder] = {}
        self._recomputes = False
        weights = [[j.weight_OI.to(dtype) for j in layer.joined] for layer in blocks.layers]
        self._biases = [
            [None if j.bias_O is None else j.bias_O.to(dtype) for j in layer.joined]
            for layer in blocks.layers
        ]
        self.base = BaseLinears(weights, self._biases)
        self._merged: list[list[Tensor]] = []
        self._merged_of: tuple[Tensor | None, int | None, int] = (None, None, 0)

    @property
    def merges(self) -> bool:
        """Whether one slot runs with merged weights.

        Not in bfloat16, where the sum would round the adapters away, and not where a second
        copy of the weights is large: the branch takes about as long there.
        """
        is_wide = self.dtype in (torch.float32, torch.float64)
        return is_wide and self.blocks.num_parameters <= MERGED_UP_TO

    def save_memory(self) -> bool:
        """From now on keep less for gradients and compute it again; False where that is so already."""
        changed, self._recomputes = not self._recomputes, True
        return changed

    def linears(
        self, stack: AdapterStack, view: AdapterView | None, slot: int | None = None
    ) -> Linears:
        """The layers of a view, of one of its slots if ``slot`` says which; none: the base's.

        Merged weights live in one buffer: those of an earlier call change with the next.
        """
        if view is None:
            return self.base
        if slot is None or view.num_slots == 1:
            pairs = view.pairs
        else:
            pairs = [(a[slot : slot + 1], b[slot : slot + 1]) for a, b in view.pairs]
        adapters = self._by_place(stack, pairs)
        if not self.merges or pairs[0][0].shape[0] > 1:
            return BranchLinears(self.base, adapters, stack.scale, self.dtype)
        if torch.is_grad_enabled() and view.num_slots > 1:
            # Every slot's graph needs its weights until the gradient: no common buffer.
            merged = self._empty()
            self._write(merged, adapters, stack.scale)
        else:
            merged = self._merge(adapters, stack.scale, view, slot)
        return MergedLinears(merged, self._biases, adapters, stack.scale)

    def linears_by_slot(
        self, stack: AdapterStack | None, view: AdapterView | None
    ) -> Callable[[int], Linears]:
        """:meth:`linears` of one slot after another; each is good until the next is asked for."""
        if stack is None or view is None:
            return lambda _slot: self.base
        return lambda slot: self.linears(stack, view, slot)

    def decoder(self, linears: Linears, prompts: PaddedPrompts, length: int) -> Decoder:
        """Reads ``prompts``, one row per completion; completions of up to ``length`` tokens follow."""
        return Decoder(self.blocks, linears, prompts, length)

    def draw_all(
        self,
        stack: AdapterStack,
        view: AdapterView,
        prompts: PaddedPrompts,
        uniforms_KNT: Tensor,
        rule: tuple[float, tuple[int, tuple[int, ...]]],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids, mask and log-probs ``[K, N, T]`` and whether a row ended ``[K, N]``, of all slots at once.

        ``prompts``: one row per completion. ``rule``: temperature, and padding and stop tokens.
        The slots are filled up to a power of two by repeats of the last, so that few shapes
        are ever captured.
        """
        num_slots, num_rows, length = uniforms_KNT.shape
        capacity = 1 << (num_slots - 1).bit_length()
        slots = [min(slot, num_slots - 1) for slot in range(capacity)]
        pairs = [(a[slots], b[slots]) for a, b in view.pairs]
        adapters = self._by_place(stack, pairs)
        shape = Shape(
            capacity, num_rows, prompts.ids.shape[1], length, rule[0], stack.rank, stack.scale
        )
        decoder = self._decoders.get(shape)
        if decoder is None:
            linears = BranchLinears(self.base, adapters, stack.scale, self.dtype)
            assert self._head is not None, "a model that draws has a head"
            decoder = StaticDecoder(self.blocks, linears, self._head, shape, rule[1])
            self._decoders[shape] = decoder
        by_row = [
            torch.cat([tensor.view(num_slots, num_rows, -1)[s] for s in slots])
            for tensor in (prompts.ids, prompts.mask, uniforms_KNT)
        ]
        by_slot = self.linears_by_slot(stack, view)
        found = decoder.draw(
            PaddedPrompts(by_row[0], by_row[1]), adapters, lambda s: by_slot(slots[s]), by_row[2]
        )
        return (
            found[0][:num_slots],
            found[1][:num_slots],
            found[2][:num_slots],
            found[3][:num_slots],
        )

    def _by_place(self, stack: AdapterStack, pairs: Pairs) -> list[list[Pairs]]:
        index = {target.name: i for i, target in enumerate(stack.targets)}

        def pairs_of(joined: Joined) -> Pairs:
            return [
                pairs[index[name]] if name in index else _silent(pairs[0], joined, span)
                for name, span in zip(joined.names, joined.spans, strict=True)
            ]

        return [[pairs_of(joined) for joined in layer.joined] for layer in self.blocks.layers]

    def _merge(
        self, adapters: list[list[Pairs]], scale: float, view: AdapterView, slot: int | None
    ) -> list[list[Tensor]]:
        """The common buffer, written anew if these adapters are not the ones in it."""
        # A tensor's version counts its in-place changes, whoever makes them.
        version = view.flat_KP._version  # pyright: ignore[reportPrivateUsage]
        known, known_slot, known_version = self._merged_of
        if known is not view.flat_KP or (known_slot, known_version) != (slot, version):
            self._merged_of = None, None, 0
            self._merged = self._merged or self._empty()
            self._write(self._merged, adapters, scale)
            self._merged_of = view.flat_KP, slot, version
        return self._merged

    def _empty(self) -> list[list[Tensor]]:
        return [
            [torch.empty_like(j.weight_OI, dtype=self.dtype) for j in layer.joined]
            for layer in self.blocks.layers
        ]

    @torch.no_grad()
    def _write(self, merged: list[list[Tensor]], adapters: list[list[Pairs]], scale: float) -> None:
        for i, layer in enumerate(self.blocks.layers):
            for place, joined in enumerate(layer.joined):
                for (a, b), span in zip(adapters[i][place], joined.spans, strict=True):
                    torch.addmm(
                        self.base.weight(i, place)[span],
                        b[0].to(self.dtype),
                        a[0].to(self.dtype),
                        alpha=scale,
                        out=merged[i][place][span],
                    )

    def last_states(self, sequences: PaddedPrompts) -> Tensor:
        """Hidden states of the last token of each left-padded row by the frozen base, ``[R, D]``."""
        nothing = sequences.ids[:, :1]
        found = find_prompts(sequences)
        packed = pack(found, nothing, torch.ones_like(nothing))
        states_MD = forward(self.blocks, self.base, packed)
        return found.to_rows(states_MD[found.ragged.lengths.cumsum(0) - 1])

    def states(
        self,
        stack: AdapterStack,
        view: AdapterView | None,
        prompts: PaddedPrompts,
        completions: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Hidden states that predict each completion token, ``[K, N, T, D]``; what stands at masked places is of no use.

        ``completions``: ids and mask, ``[K, N, T]``. Slot by slot, so that a trial's numbers
        do not depend on its neighbours by one bit. Gradient as the caller's grad mode says.
        """
        ids_KNT, mask_KNT = completions
        num_slots, num_rows, width = ids_KNT.shape
        pieces: list[Tensor] = []
        for slot in range(num_slots):
            rows = slice(slot * num_rows, (slot + 1) * num_rows)
            own = find_prompts(PaddedPrompts(prompts.ids[rows], prompts.mask[rows]))
            packed = pack(own, ids_KNT[slot], mask_KNT[slot])
            linears = self.linears(stack, view, slot)
            states_MD = forward(self.blocks, linears, packed, recompute=self._recomputes)
            pieces.append(predicting(packed, states_MD, width))
        return torch.stack(pieces)


def _silent(like: tuple[Tensor, Tensor], joined: Joined, span: slice) -> tuple[Tensor, Tensor]:
    """An adapter that adds nothing and learns nothing, for a layer that the spec leaves out."""
    num_slots, rank, _ = like[0].shape
    num_out, num_in = span.stop - span.start, joined.weight_OI.shape[1]
    return like[0].new_zeros(num_slots, rank, num_in), like[1].new_zeros(num_slots, num_out, rank)


def fuse(
    model: Any, body: nn.Module, dtype: torch.dtype, head: Head | None = None
) -> FusedModel | None:
    """Our own forward for ``model``, if it is of a known family and gives the model's own numbers; else None.

    Without a head the model is one that may yet be saved: its weights are joined in copies.
    """
    blocks = find_blocks(body, model.config, in_place=head is not None)
    if blocks is None:
        return None
    fused = FusedModel(blocks, dtype, None if head is None else (head.weight, head.bias))
    return fused if _agrees(fused, body) else None


@torch.no_grad()
def _agrees(fused: FusedModel, body: nn.Module) -> bool:
    """Compare once with the model's own forward, on two short texts of unequal length."""
    device = fused.blocks.embedding_VD.device
    vocabulary = fused.blocks.embedding_VD.shape[0]
    ids = torch.arange(12, device=device).view(2, 6) % vocabulary
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    completion = torch.arange(3, 11, device=device).view(1, 2, 4) % vocabulary
    valid = torch.ones_like(completion, dtype=torch.bool)
    whole, whole_mask = (
        torch.cat([ids, completion[0]], 1),
        torch.cat([mask, torch.ones_like(mask[:, :4])], 1),
    )
    positions = (whole_mask.cumsum(-1) - 1).clamp(min=0)
    theirs = (
        body(input_ids=whole, attention_mask=whole_mask, position_ids=positions)
        .last_hidden_state[:, 5:9]
        .float()
    )
    packed = pack(find_prompts(PaddedPrompts(ids, mask)), completion[0], valid[0])
    ours = predicting(packed, forward(fused.blocks, fused.base, packed), 4).float()
    slack = TOLERANCE if fused.dtype != torch.bfloat16 else 0.1
    return bool((ours - theirs).abs().max() <= slack * theirs.abs().max())

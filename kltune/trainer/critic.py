"""PPO's value function: each slot's own weights on the frozen base, and a linear head from hidden state to value.

The value at a token is that of the text before it (1707.06347). Shapes: K slots,
N sequences, T completion tokens, D hidden size; a head is one flat row of D weights and a bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kltune.trainer.optimizer import StackedAdamW


class Critic:
    """The value heads of K slots. They start at zero: the first values are 0, whatever the text."""

    def __init__(self, num_slots: int, num_hidden: int, device: torch.device) -> None:
        """All heads zero."""
        self.head_KH = torch.zeros(num_slots, num_hidden + 1, device=device)
        self.optimizer = StackedAdamW(num_slots, num_hidden + 1, device)

    def reset(self, slot: int) -> None:
        """Start a slot's head anew; nothing of an ended trial stays."""
        self.head_KH[slot].zero_()
        self.optimizer.reset(slot)

    def heads(self, slots: Sequence[int]) -> Tensor:
        """The heads of some slots as one autograd leaf: ``[k, D + 1]``."""
        rows = torch.as_tensor(list(slots), device=self.head_KH.device)
        return self.head_KH.index_select(0, rows).requires_grad_(True)


def values(hidden_KNTD: Tensor, head_KH: Tensor, mask_KNT: Tensor) -> Tensor:
    """``[K, N, T]`` values, 0 at masked tokens."""
    hidden_KNTD = hidden_KNTD.to(head_KH.dtype)
    weight_KD, bias_K = head_KH[:, :-1], head_KH[:, -1]
    raw_KNT = (hidden_KNTD * weight_KD[:, None, None, :]).sum(dim=-1) + bias_K[:, None, None]
    return raw_KNT.where(mask_KNT, torch.zeros_like(raw_KNT))

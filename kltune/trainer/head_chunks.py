"""Hidden states and a head in, log-probs of any chunk of tokens x vocabulary out, and what a chunk adds to each column.

Shapes: M tokens, V vocabulary, D hidden; m and v: those of one chunk; k: top-k.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kltune.trainer.logit_rule import PLAIN, LogitRule


@dataclass(frozen=True, slots=True)
class Grid:
    """How M x V is cut."""

    rows: tuple[slice, ...]
    columns: tuple[slice, ...]

    @classmethod
    def over(cls, size: tuple[int, int], elements: int, min_tokens: int) -> Grid:
        """Cut ``size`` = (M, V): tokens first, the vocabulary only where ``min_tokens`` of it don't fit."""
        num_tokens, vocabulary = size
        width = min(vocabulary, max(1, elements // min_tokens))
        height = max(1, elements // width)
        return cls(
            tuple(slice(a, a + height) for a in range(0, max(1, num_tokens), height)),
            (slice(0, None),)  # the whole vocabulary
            if width == vocabulary
            else tuple(slice(a, min(a + width, vocabulary)) for a in range(0, vocabulary, width)),
        )

    @property
    def is_whole(self) -> bool:
        """All in one chunk."""
        return len(self.rows) == len(self.columns) == 1


@dataclass(frozen=True, slots=True)
class Side:
    """One model's hidden states and head, in the matmul's type."""

    hidden_MD: Tensor
    weight_VD: Tensor
    bias_V: Tensor | None
    temperature: float
    rule: LogitRule = PLAIN
    """What the model does to its logits after the head."""

    def model_logits(self, rows: slice, columns: slice) -> Tensor:
        """``[m, v]``, the model's own: before the temperature, float32 or wider."""
        bias = None if self.bias_V is None else self.bias_V[columns]
        logits = F.linear(self.hidden_MD[rows], self.weight_VD[columns], bias)
        return self.rule.apply(logits.to(torch.promote_types(logits.dtype, torch.float32)))

    def logits(self, rows: slice, columns: slice) -> Tensor:
        """``[m, v]`` over the temperature, float32 or wider."""
        logits = self.model_logits(rows, columns)
        return logits if self.temperature == 1 else logits.div_(self.temperature)

    def pull(self, grad_mv: Tensor, rows: slice, columns: slice) -> Tensor:
        """Gradient of what the linear head gives, from that of :meth:`model_logits`."""
        capped = None if self.rule.cap is None else self.model_logits(rows, columns)
        return self.rule.pull(grad_mv, capped)

    def normaliser(self, rows: slice, grid: Grid) -> Tensor | None:
        """Largest logit and log-sum-exp above it, ``[m, 2]``; None if one chunk has the vocabulary."""
        if len(grid.columns) == 1:
            return None
        tops: list[Tensor] = []
        sums: list[Tensor] = []
        for columns in grid.columns:
            logits = self.logits(rows, columns)
            tops.append(logits.amax(-1))
            # A chunk of forbidden tokens alone has the top -inf and adds 0.
            shift_m = tops[-1].where(tops[-1].isfinite(), 0.0)
            sums.append(logits.sub_(shift_m[:, None]).exp_().sum(-1))
        tops_cm = torch.stack(tops)
        top_m = tops_cm.amax(0)
        sum_m = (torch.stack(sums) * (tops_cm - top_m).exp()).sum(0)
        return torch.stack([top_m, sum_m.log()], dim=-1)

    def log_probs(self, rows: slice, columns: slice, normaliser_m2: Tensor | None) -> Tensor:
        """``[m, v]``; the normaliser is that of these rows."""
        logits = self.logits(rows, columns)
        if normaliser_m2 is None:
            return torch.log_softmax(logits, dim=-1)
        # Two steps: the top is subtracted exactly where it is close, as log_softmax does.
        return logits.sub_(normaliser_m2[:, :1]).sub_(normaliser_m2[:, 1:])


def places_in(columns: slice, ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """Places of token ids within a chunk of the vocabulary; which are in it (None: all of them)."""
    if columns.stop is None:
        return ids, None
    inside = (ids >= columns.start) & (ids < columns.stop)
    return (ids - columns.start).where(inside, 0), inside


def _pick(log_probs: Tensor, ids_m: Tensor, columns: slice) -> Tensor:
    places, inside = places_in(columns, ids_m)
    picked_m = log_probs.gather(-1, places[:, None])[:, 0]
    return picked_m if inside is None else picked_m.where(inside, 0.0)


def sums_of(log_p: Tensor, log_q: Tensor, targets_m: Tensor, columns: slice) -> list[Tensor]:
    """What a chunk adds to log p and log q of the target, exact, forward and entropy: each ``[m]``."""
    at_target = [_pick(log_probs, targets_m, columns) for log_probs in (log_p, log_q)]
    p, q = log_p.exp(), log_q.exp()
    u = log_p - log_q
    sums = [_dot(p, u), -_dot(q, u), -_dot(p, log_p)]
    if not all(bool(s.isfinite().all()) for s in sums):
        # 0 x inf: a token that one model forbids adds 0 to the sum that it weighs.
        sums = [_dot_where(p, u), -_dot_where(q, u), -_dot_where(p, log_p)]
    return [*at_target, *sums]


def _dot(weights: Tensor, values: Tensor) -> Tensor:
    return torch.linalg.vecdot(weights, values)


def _dot_where(weights: Tensor, values: Tensor) -> Tensor:
    """Values at weight 0 do not matter."""
    return (weights * values).masked_fill_(weights == 0, 0.0).sum(-1)


def top_of(
    log_p: Tensor, log_q: Tensor, start: int, top_k: int, before: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Log p, log q and ids of the k tokens that the policy likes best, of this chunk and ``before``."""
    values, places = log_p.topk(min(top_k, log_p.shape[-1]), dim=-1)
    found = values, log_q.gather(-1, places), places + start
    if not before:
        return found
    both = [torch.cat(pair, dim=-1) for pair in zip(before, found, strict=True)]
    best = both[0].topk(min(top_k, both[0].shape[-1]), dim=-1).indices
    return tuple(part.gather(-1, best) for part in both)

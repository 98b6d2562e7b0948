"""A model's config in, what it does to its logits after the head out: a scale, then a soft cap.

Which of the rules that a config could mean is the model's own is measured, not read: the same field means
nothing in one architecture (MPT's ``logit_scale``) and a factor in another (Cohere's).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

_FACTORS: Final = ("logit_scale", "lm_head_multiplier")
"""Cohere; Falcon-H1."""
_DIVISORS: Final = ("logits_scaling",)
"""Granite."""
_CAPS: Final = ("final_logit_softcapping", "logits_soft_cap")
"""Gemma 2 and 3, NanoChat; RecurrentGemma."""


@dataclass(frozen=True, slots=True)
class LogitRule:
    """z = cap tanh(scale y / cap), y being what the linear head gives."""

    scale: float = 1.0
    cap: float | None = None
    """None: no cap, z = scale y."""

    @property
    def is_plain(self) -> bool:
        """Whether z = y."""
        return self.scale == 1.0 and self.cap is None

    def apply(self, logits: Tensor) -> Tensor:
        """Z of y; a plain rule gives ``logits`` itself."""
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.cap is None else (logits / self.cap).tanh_().mul_(self.cap)

    def pull(self, grad: Tensor, capped: Tensor | None) -> Tensor:
        """The gradient of y from that of z; ``capped`` is z, needed where there is a cap."""
        if self.cap is not None and capped is not None:
            grad = grad * (1 - (capped / self.cap).square_())
        return grad if self.scale == 1.0 else grad * self.scale


PLAIN: Final = LogitRule()


def own_rule(config: Any, ours: Tensor, theirs: Tensor) -> tuple[LogitRule, float]:
    """The rule that comes closest to the model's own logits, and the largest difference (logits) that is left.

    ``ours``: what the linear head gives; ``theirs``: the model's own logits at the same places.
    """
    scales, caps = [1.0], [None, *_numbers(config, _CAPS)]
    scales += _numbers(config, _FACTORS)
    scales += [1 / number for number in _numbers(config, _DIVISORS)]
    rules = [LogitRule(scale, cap) for scale in scales for cap in caps]
    ours, theirs = ours.float(), theirs.float()
    # NaN is the largest of all: a broken model has no rule.
    gaps = [float((rule.apply(ours) - theirs).abs().max().nan_to_num(torch.inf)) for rule in rules]
    best = min(range(len(rules)), key=gaps.__getitem__)
    return rules[best], gaps[best]


def _numbers(config: Any, names: tuple[str, ...]) -> list[float]:
    found = [getattr(config.get_text_config(), name, None) for name in names]
    return [float(n) for n in found if isinstance(n, int | float) and n > 0]

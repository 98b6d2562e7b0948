"""The toy of four tokens of the KL tests, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.trainer import kl
from kltune.trainer.kl import TokenKL

PI = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
REF = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
UNIFORM = torch.full((4,), 0.25, dtype=torch.float64)
U = PI.log() - REF.log()


def columns(logprobs: Tensor, old: Tensor, ref: Tensor, in_top_k: Tensor | None = None) -> TokenKL:
    """Every token of the vocabulary as the sampled one, once."""
    if in_top_k is None:
        in_top_k = torch.arange(len(ref)) < len(ref) // 2
    top_k = (logprobs.exp() * (logprobs - ref)).where(in_top_k, 0.0).sum()
    return TokenKL(
        logprobs=logprobs,
        old_logprobs=old,
        ref_logprobs=ref,
        exact=kl.exact(logprobs, ref).expand_as(logprobs),
        forward=kl.forward(logprobs, ref).expand_as(logprobs),
        top_k=top_k.expand_as(logprobs),
        in_top_k=in_top_k,
    )

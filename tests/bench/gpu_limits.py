"""A device in, its matmul peak and copy bandwidth out, and what a step costs at least by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from kltune.trainer.flops import ModelSize, Passes, StepTokens, step_flops
from tests.bench.gpu_contenders import now
from tests.bench.gpu_model import GROUP, RANK, Job, Shape

TIMED = 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the device, measured."""

    flops_per_s: float
    """Of a square matrix product in the job's type."""
    bytes_per_s: float
    """Of a copy within the device; bytes read and bytes written both count."""
    side: int
    """Of the matrices."""


def measure_limits(job: Job) -> Limits:
    """Medians of a few; random data, since products of zeros run faster."""
    is_cuda = job.device != "cpu"
    side = 8192 if is_cuda else 256
    left = torch.randn(side, side, device=job.device).to(job.torch_dtype)
    right = torch.randn(side, side, device=job.device).to(job.torch_dtype)
    product = _seconds(job, lambda: left @ right)
    size = 2**31 if is_cuda else 2**22
    source = torch.ones(size, dtype=torch.uint8, device=job.device)
    target = torch.empty_like(source)
    copy = _seconds(job, lambda: target.copy_(source))
    return Limits(2.0 * side**3 / product, 2.0 * size / copy, side)


def _seconds(job: Job, work: Callable[[], object]) -> float:
    for _ in range(3):
        work()
    taken: list[float] = []
    for _ in range(TIMED):
        start = now(job)
        work()
        taken.append(now(job) - start)
    return median(taken)


def model_size(shape: Shape) -> ModelSize:
    """Weights by their places."""
    head_width = shape.hidden // shape.heads
    keys = shape.kv_heads * head_width
    block = [(shape.hidden, shape.hidden)] * 2
    block += [(shape.hidden, keys)] * 2
    block += [(shape.hidden, shape.inner)] * 2 + [(shape.inner, shape.hidden)]
    head = (shape.hidden, shape.vocabulary)
    return ModelSize.of_shapes(block * shape.layers, head, shape.layers, shape.hidden)


def adapter_parameters(shape: Shape) -> int:
    """Of one trial."""
    keys = shape.kv_heads * (shape.hidden // shape.heads)
    ends = [2 * shape.hidden] * 2 + [shape.hidden + keys] * 2 + [shape.hidden + shape.inner] * 3
    return RANK * shape.layers * sum(ends)


def position_bytes(job: Job, slots: int) -> float:
    """Bytes that decoding one position of all slots must read at least.

    The weights once for all slots, the adapters of each, and the keys and values so far: of the prompt
    once a group, of the completion (half of it, on average) once a row. Logits and sampling are left out.
    """
    shape, size = job.shape, model_size(job.shape)
    width = 2 if job.dtype == "bfloat16" else 4
    per_token = 2 * shape.layers * shape.kv_heads * (shape.hidden // shape.heads) * width
    prompts = job.completions // GROUP * job.prompt_tokens
    completions = job.completions * job.tokens / 2
    own = adapter_parameters(shape) * width + per_token * (prompts + completions)
    return (size.body + size.head) * width + slots * own


def scoring_flops(job: Job) -> float:
    """Useful operations of one trial-step after its rollout: reference, policy forward and backward."""
    lengths = [job.prompt_tokens] * (job.completions // GROUP)
    tokens = StepTokens.of(lengths, [job.tokens] * job.completions, GROUP)
    found = step_flops(model_size(job.shape), adapter_parameters(job.shape), tokens, Passes())
    return float(found.reference + found.update)

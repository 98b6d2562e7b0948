"""The machine's matrix-product limit as a contender: medians of 2048 x 2048 x 2048 with all threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tests.bench.child import Channel
    from tests.bench.job import Job

SIZE = 2048
REPEATS = 7


def run(job: Job, channel: Channel) -> None:
    """Measure GFLOP/s anew at every request: fp32, and bf16 where the job is bf16."""
    torch.set_num_threads(job.threads)
    size = 256 if job.model == "tiny" else SIZE
    products = {"fp32": _product(size, torch.float32)}
    if job.precision == "bf16":
        products["bf16"] = _product(size, torch.bfloat16)
    channel.reply({})
    while channel.is_asked():
        found = {name: 2 * size**3 / _seconds(run) / 1e9 for name, run in products.items()}
        channel.reply({"gflops": found})


def _product(size: int, dtype: torch.dtype) -> Callable[[], object]:
    left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
    out = torch.empty(size, size, dtype=dtype)
    return lambda: torch.mm(left, right, out=out)


def _seconds(run: Callable[[], object]) -> float:
    run()
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times)

"""What bfloat16 arithmetic costs in KL: on the built-in model, at policies near and far from their start.

accelerate keeps one arithmetic per process, so each is measured in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

MEASURE = """
import json, sys
from pathlib import Path
import torch
from kltune.spec.model import ModelSpec
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.logprobs import Completions, Scoring, score
from kltune.trainer.lora import attach
from kltune.trainer.model import load_model
from kltune.trainer.reduce import token_mean
from kltune.trainer.sources import resolve_model

spec = ModelSpec(base="builtin:kitchen")
model = load_model(spec, resolve_model(spec.base, None, Path), "cpu", sys.argv[1])
found = {}
for step in (0.0, 0.003, 0.01, 0.03, 0.1):
    draw = torch.Generator().manual_seed(0)
    stack = attach(model.body, 1, 8, 16)
    stack.reset(0, 0)
    stack.flat_KP.add_(step * torch.randn(stack.flat_KP.shape, generator=draw))
    ids = torch.randint(3, model.vocabulary, (64, 8), generator=draw)
    completions = torch.randint(3, model.vocabulary, (1, 64, 16), generator=draw)
    mask = torch.ones_like(completions).bool()
    rows = Completions(PaddedPrompts(ids, torch.ones_like(ids)), completions, mask)
    with torch.no_grad():
        columns = score(model, stack, stack.view([0]), rows, Scoring(1.0, only_valid=True))
    kl = columns.exact_kl_KNT[0]
    k1 = (columns.policy_KNT - columns.reference_KNT)[0].sum(-1)
    found[str(step)] = {
        "kl_token": float(token_mean(kl, mask[0])),
        "noise": float(k1.std() / len(k1) ** 0.5 / kl.shape[1]),
        "dtypes": sorted({str(t.dtype) for t in (columns.policy_KNT, kl, stack.flat_KP)}),
    }
print(json.dumps(found))
"""

FLOOR = 5e-4
"""Nats per token below which bfloat16 can't tell a KL from its own rounding (measured: 2.5e-4 at KL .0029)."""


def measured(precision: str) -> dict[str, Any]:
    command = [sys.executable, "-c", MEASURE, precision]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    return measured("fp32"), measured("bf16")


Both = tuple[dict[str, Any], dict[str, Any]]


def test_at_the_start_the_kl_is_exactly_zero_in_bfloat16_too(both: Both) -> None:
    assert [one["0.0"]["kl_token"] for one in both] == [0.0, 0.0]


def test_bfloat16_changes_a_kl_by_less_than_its_sampling_noise(both: Both) -> None:
    exact, rough = both
    kls = [exact[step]["kl_token"] for step in ("0.003", "0.01", "0.03", "0.1")]
    assert kls == sorted(kls)
    assert kls[0] < 1e-2
    assert kls[-1] > 1, "the case must reach from near to far"
    for step, fine in exact.items():
        error = abs(rough[step]["kl_token"] - fine["kl_token"])
        assert error <= max(0.1 * fine["noise"], FLOOR), step


def test_log_probs_kl_and_adapters_are_float32_under_bfloat16(both: Both) -> None:
    for one in both:
        assert {name for facts in one.values() for name in facts["dtypes"]} == {"torch.float32"}

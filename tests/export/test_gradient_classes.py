"""That what is exported has the studied gradient: each release's KL in the loss, taken over all tokens of a small vocabulary.

The terms are written down as the releases have them (sources: the exporters' first lines).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from export_case import target, winner
from torch import Tensor

from kltune.errors import SpecError
from kltune.export.convert import Gradient, gradient_of
from kltune.export.releases import listed_versions, number_of
from kltune.launch.export import EXPORTERS
from kltune.spec.penalty import Penalty

torch.set_num_threads(1)


def k2(u: Tensor) -> Tensor:
    return u.square() / 2


def k3(u: Tensor) -> Tensor:
    return torch.exp(-u) - 1 + u


def weighted(term: Tensor, logprobs: Tensor) -> Tensor:
    return torch.exp(logprobs - logprobs.detach()) * term


def in_trl(values: Mapping[str, Any], u: Tensor, logprobs: Tensor, version: str) -> Tensor:
    is_corrected = values.get("use_bias_correction_kl", False)
    return weighted(k3(u), logprobs) if is_corrected else k3(u)


def in_verl(values: Mapping[str, Any], u: Tensor, logprobs: Tensor, version: str) -> Tensor:
    name = values["actor_rollout_ref.actor.kl_loss_type"]
    if name.endswith("+"):
        assert number_of(version) >= (0, 8, 0), "raises NotImplementedError"
        return k2(u) - k2(u).detach() + k3(u).detach()
    return {"mse": k2, "low_var_kl": k3}[name](u)


def in_openrlhf(values: Mapping[str, Any], u: Tensor, logprobs: Tensor, version: str) -> Tensor:
    name = next(v for k, v in values.items() if k.endswith(("kl.estimator", "kl_estimator")))
    return {"k2": k2, "k3": k3}[name](u)


def in_nemo(values: Mapping[str, Any], u: Tensor, logprobs: Tensor, version: str) -> Tensor:
    term = {"k2": k2, "k3": k3}[values.get("loss_fn.reference_policy_kl_type", "k3")](u)
    return weighted(term, logprobs) if number_of(version) >= (0, 7, 0) else term


TERMS = {"trl": in_trl, "verl": in_verl, "openrlhf": in_openrlhf, "nemo-rl": in_nemo}
CASES = [(name, version) for name in TERMS for version in listed_versions(name)]


@pytest.mark.parametrize(("framework", "version"), CASES)
def test_the_expected_gradient_is_of_the_studied_class(framework: str, version: str) -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(5, generator=generator, dtype=torch.float64).log_softmax(0)
    policy = logits.log_softmax(0)
    exact = (policy.exp() * (policy - reference)).sum()
    (reverse,) = torch.autograd.grad(exact, logits, retain_graph=True)
    forward = policy.exp().detach() - reference.exp()
    assert float((reverse - forward).norm()) > 0.05
    found = 0
    for penalty in Penalty:
        kind = gradient_of(penalty)
        if not penalty.in_loss or kind not in (Gradient.LOCAL, Gradient.FORWARD):
            continue
        given = winner(penalty.value)
        try:
            made = EXPORTERS[framework](given, target(given, framework, version))
        except SpecError:
            continue
        found += 1
        term = TERMS[framework](made.values, policy - reference, policy, version)
        loss = (policy.exp().detach() * term).sum()
        (theirs,) = torch.autograd.grad(loss, logits, retain_graph=True)
        expected = reverse if kind is Gradient.LOCAL else forward
        torch.testing.assert_close(theirs, expected)
    assert found


ALGORITHMS = ("grpo", "dr-grpo", "rloo", "reinforce", "ppo")


@pytest.mark.parametrize(("framework", "version"), CASES)
def test_every_setting_is_either_written_with_known_keys_or_refused(
    framework: str, version: str
) -> None:
    prefix = {"trl": ("GRPOConfig.", "RLOOConfig.")}.get(framework, ("",))
    written, refusals = 0, set[str]()
    for algorithm in ALGORITHMS:
        for penalty in (*Penalty, None):
            for extra in ({}, {"epochs": 2, "minibatches": 2, "clip_ratio_high": 0.28}):
                given = winner(
                    penalty and penalty.value,
                    beta=0.1 if penalty else 0.0,
                    trainer={"algorithm": algorithm, **extra},
                )
                where = target(given, framework, version)
                try:
                    made = EXPORTERS[framework](given, where)
                except SpecError as error:
                    refusals.add(str(error))
                    continue
                written += 1
                assert all(any(f"{p}{k}" in where.keys for p in prefix) for k in made.values)
                assert all(key.comment for key in made.keys)
    assert written >= 8
    for message in refusals:
        assert message.startswith(f"--to {framework}: ")
        assert "; " in message, "names no way out"

"""A bank and some completions in, whether two passes over them agree out, and what could make them differ."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from kltune.trainer.bank import Bank
from kltune.trainer.lora import StackedLoRALinear
from kltune.trainer.soundness.drawn import Drawn, rows_of, trainer_logprobs
from kltune.trainer.soundness.facts import DropoutFacts

NUM_ROWS = 8
"""Completions that are scored twice."""

SHOWN = 8
"""Modules that are named."""


def dropout_facts(bank: Bank, drawn: Drawn, proxy_repeats: bool | None) -> DropoutFacts:
    """``proxy_repeats``: whether the proxy gave the same scores twice."""
    loaded, proxy = bank.parts.loaded, bank.parts.data.proxy
    named: list[tuple[str, nn.Module]] = [("model", loaded.model)]
    trunk = getattr(proxy, "trunk", None)
    is_learned = isinstance(trunk, nn.Module)
    if is_learned:
        named.append(("proxy", trunk))
    modules = [(f"{owner}.{n}", m) for owner, root in named for n, m in root.named_modules()]
    active = [name for name, module in modules if _drops(module)]
    rows = rows_of(drawn.rollout, drawn.few(NUM_ROWS))
    once, again = trainer_logprobs(bank, rows), trainer_logprobs(bank, rows)
    return DropoutFacts(
        active=tuple(active[:SHOWN]),
        num_active=len(active),
        in_config=_rates(loaded.model.config),
        training_modules=sum(
            m.training for _, m in modules if not isinstance(m, StackedLoRALinear)
        ),
        policy_gap=_gap(once.policy_KNT, again.policy_KNT),
        reference_gap=_gap(once.reference_KNT, again.reference_KNT),
        scores_repeat=proxy_repeats if is_learned else None,
    )


def _drops(module: nn.Module) -> bool:
    return isinstance(module, _DropoutNd) and module.training and module.p > 0


def _rates(config: Any) -> tuple[str, ...]:
    """``name=rate`` of every rate above 0."""
    found: dict[str, Any] = config.to_dict()
    return tuple(
        f"{name}={value:g}"
        for name, value in sorted(found.items())
        if ("drop" in name or name.endswith("pdrop")) and isinstance(value, float) and value > 0
    )


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())

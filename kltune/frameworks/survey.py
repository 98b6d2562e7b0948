"""Samples in, what every known framework would log for them in its usual settings out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kltune.frameworks import nemo_rl, openrlhf, trl, verl
from kltune.frameworks.samples import Logged, Samples


@dataclass(frozen=True, slots=True)
class FrameworkLog:
    """A number with everything that says whose it is."""

    framework: str
    """With the version whose source was read."""
    setting: str
    """Algorithm or flags under which it is logged."""
    metric: str
    """As the framework names it."""
    logged: Logged


def survey(samples: Samples) -> tuple[FrameworkLog, ...]:
    """Every framework's KL metrics; the same samples, so all differences are definitions."""
    found: list[FrameworkLog] = []

    def add(framework: str, setting: str, logs: Mapping[str, Logged]) -> None:
        found.extend(FrameworkLog(framework, setting, name, log) for name, log in logs.items())

    add(trl.VERSION, "GRPO", trl.grpo(samples))
    add(trl.VERSION, "RLOO", trl.rloo(samples))
    add(trl.PPO_VERSION, "PPO", trl.ppo(samples))
    for kind in ("low_var_kl", "mse", "kl"):
        add(verl.VERSION, f"kl_loss_type {kind}", verl.in_loss(samples, kind))
    add(verl.VERSION, "use_kl_in_reward, kl", verl.in_reward(samples))
    add(openrlhf.VERSION, "in reward, k1", openrlhf.in_reward(samples))
    for kind in ("k2", "k3"):
        add(openrlhf.VERSION, f"kl.use_loss, {kind}", openrlhf.in_loss(samples, kind))
    add(nemo_rl.VERSION, "kl_type k3", nemo_rl.in_loss(samples))
    return tuple(found)

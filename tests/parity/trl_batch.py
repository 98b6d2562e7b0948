"""A batch in, TRL's loss, gradient, advantages and metrics on it out: TRL's own trainers, of which only generation is stubbed."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import copy
import os
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

GROUP = 4
MAX_NEW_TOKENS = 6
TEMPERATURE = 0.9
PROMPTS = ("w1 w2 w3", "w4", "w5 w6")
LENGTHS = (6, 3, 1, 4, 2, 6, 5, 6, 3, 1, 6, 2)
ENDS = frozenset({1, 2, 4, 8, 9, 11})
"""Rows whose completion ends in <eos>."""
SCORES = (0.7, -0.4, 1.9, 0.2, 3.1, -2.2, 0.4, 0.9, 0.25, 0.25, 0.25, 0.25)
"""The last group's are equal; a KL in the reward sets them apart."""
TRANSITION = "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
"""TRL 1.16 still reads what transformers 5.24 has renamed."""

Scores = Sequence[float | None]


class GivenGRPO(GRPOTrainer):
    """TRL's trainer, given its completions."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[list[list[int]], None]:
        return completions(), None


class GivenRLOO(RLOOTrainer):
    """TRL's trainer, given its completions."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> list[list[int]]:
        return completions()


Kind = type[GivenGRPO] | type[GivenRLOO]


def completions() -> list[list[int]]:
    """Token ids (2..29), with <eos> = 1 at the end of some."""
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randint(2, 30, (n,), generator=generator).tolist() for n in LENGTHS]
    return [[*ids[:-1], 1] if i in ENDS else ids for i, ids in enumerate(drawn)]


def rows() -> list[dict[str, str]]:
    return [{"prompt": prompt} for prompt in PROMPTS for _ in range(GROUP)]


def nudged(model: LlamaForCausalLM, seed: int, size: float) -> LlamaForCausalLM:
    """A copy whose matrices are moved a little, by a generator of its own."""
    moved = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            if parameter.dim() == 2:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(size * parameter.std() * noise)
    return moved


@dataclass(frozen=True)
class Policies:
    """The three policies of a step."""

    behaviour: LlamaForCausalLM
    """Drew the completions."""
    now: LlamaForCausalLM
    """Takes the gradient."""
    reference: LlamaForCausalLM
    reference_path: Path
    """TRL reads it from there."""


def policies(folder: Path, *, off_policy: bool) -> Policies:
    """Reference and policy now some .1 nats a token away from the behaviour policy."""
    behaviour = tiny.llama(0)
    reference = nudged(behaviour, seed=1, size=0.05)
    now = nudged(behaviour, seed=2, size=0.05 if off_policy else 0.0)
    reference.save_pretrained(folder)
    return Policies(behaviour, now, reference, folder)


@dataclass(frozen=True)
class TrlStep:
    """What TRL made of the batch."""

    loss: float
    gradient_P: Tensor
    inputs: dict[str, Tensor]
    """What its rollout handed to its loss."""
    metrics: dict[str, float]


def gradient_of(model: torch.nn.Module) -> Tensor:
    """All parameters' gradients, one after the other."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([grad.flatten() for grad in grads])


def make_trainer(
    kind: Kind, given: Policies, folder: Path, scores: Scores, fields: dict[str, Any]
) -> GivenGRPO | GivenRLOO:
    """TRL's trainer of the behaviour policy; its reference comes from the folder."""

    def scorer(prompts: list[str], **kwargs: Any) -> list[float | None]:
        return list(scores)

    config: type[Any] = GRPOConfig if kind is GivenGRPO else RLOOConfig
    model = copy.deepcopy(given.behaviour)
    model.config._name_or_path = str(given.reference_path)
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": len(LENGTHS),
        "num_generations": GROUP,
        "num_iterations": 2,  # with 1, GRPOTrainer takes the policy now for the behaviour policy
        "max_completion_length": MAX_NEW_TOKENS,
        "temperature": TEMPERATURE,
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "shuffle_dataset": False,
        "disable_tqdm": True,
    }
    return kind(
        model=model,
        reward_funcs=scorer,
        args=config(**{**options, **fields}),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=tiny.tokenizer(),
    )


def trl_step(
    kind: Kind, given: Policies, folder: Path, scores: Scores = SCORES, **fields: Any
) -> TrlStep:
    """Rollout of the behaviour policy, then the loss of the policy now, by TRL's own methods."""
    trainer = make_trainer(kind, given, folder, scores, fields)
    model: Any = trainer.model
    model.train()
    inputs = trainer._generate_and_score_completions(rows())
    model.load_state_dict(given.now.state_dict())
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(model, inputs)
    loss.backward()
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    return TrlStep(float(loss.detach()), gradient_of(model), inputs, metrics)


class Recorder(TrainerCallback):
    """Keeps model and gradient of every update, before it is applied."""

    def __init__(self) -> None:
        self.models: list[LlamaForCausalLM] = []
        self.gradients_P: list[Tensor] = []

    def on_pre_optimizer_step(self, *args: Any, model: LlamaForCausalLM, **kwargs: Any) -> None:
        now = tiny.llama()
        now.load_state_dict(model.state_dict())
        self.models.append(now)
        self.gradients_P.append(gradient_of(model))


def trained(kind: Kind, given: Policies, folder: Path, **fields: Any) -> Recorder:
    """Two updates on one rollout, each over two micro-batches, by TRL's whole training loop."""
    loop = {
        "max_steps": 2,
        "num_iterations": 2,
        "per_device_train_batch_size": len(LENGTHS) // 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant",
        "logging_strategy": "no",
    }
    trainer = make_trainer(kind, given, folder, SCORES, {**loop, **fields})
    recorder = Recorder()
    trainer.add_callback(recorder)
    trainer.train()
    return recorder


@contextmanager
def restored_process() -> Generator[None]:
    """TRL seeds every global generator and transformers sets variables: put back afterwards."""
    environment, state = dict(os.environ), random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - the legacy generator is what TRL seeds
    with torch.random.fork_rng(devices=[]):
        yield
    os.environ.clear()
    os.environ.update(environment)
    random.setstate(state)
    np.random.set_state(numpy_state)  # noqa: NPY002

"""A job in, contenders out that take one step when asked: a bank of K trials, and a loop around HF's generate."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.bench.gpu_model import (
    ALPHA,
    BETA,
    GROUP,
    LEARNING_RATE,
    RANK,
    Distinct,
    Job,
    distinct,
    load,
    make_bank,
    make_model,
    make_prompts,
    trial,
)

NUM_PROMPTS = 64


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one trial-step: of the whole step divided by the trials that it advanced."""

    rollout_s: float
    reference_s: float
    update_s: float
    """The policy's forward and backward and the optimiser."""
    step_s: float
    facts: dict[str, float] = field(default_factory=dict[str, float])


class Contender(Protocol):
    """Something that trains."""

    name: str
    slots: int

    def warm(self) -> None:
        """Run whatever only a first step pays for."""
        ...

    def step(self) -> Step:
        """One step of every trial; nothing is left running on the device."""
        ...


class BankContender:
    """A bank of K trials, all slots taken."""

    def __init__(self, job: Job, slots: int) -> None:
        self.name, self.slots = f"kltune K={slots}", slots
        loaded = load(job)
        self.has_own_forward = loaded.fused is not None
        self.bank = make_bank(loaded, job, slots, make_prompts(job, NUM_PROMPTS), Distinct())
        for slot in range(slots):
            self.bank.admit(slot, slot, trial(slot), None)

    def warm(self) -> None:
        """Two steps: the first may still make buffers and graphs in its second half."""
        self.step()
        self.step()

    def step(self) -> Step:
        """Phases as the trainer's own metrics have them, per trial."""
        metrics = self.bank.train_step()
        values = [m.values for m in metrics]

        def seconds(*names: str) -> float:
            return fmean(sum(v.get(f"time/{n}_s", 0.0) for n in names) for v in values)

        facts = {
            "kl_sampler_token": fmean(v["kl/sampler_token"] for v in values),
            "kl_exact_token": fmean(m.kl_token for m in metrics),
            "entropy_token": fmean(v["train/entropy_token"] for v in values),
            "tokens": fmean(m.tokens for m in metrics),
            "finite": float(all(m.is_finite for m in metrics)),
            "logprobs_s": seconds("logprobs"),
            "score_s": seconds("score"),
            "gradients_s": seconds("update"),
        }
        update = seconds("logprobs", "update")
        return Step(seconds("rollout"), seconds("reference"), update, seconds("step"), facts)


class HFLoop:
    """One trial by PEFT and ``generate``: prompts repeated per completion, the rest in micro-batches.

    Adapters are in the base's own type and the loss takes the head's logits of completion positions
    only, both faster than what comes by default.
    """

    slots = 1

    def __init__(self, job: Job, micro_batch: int) -> None:
        from peft import LoraConfig, get_peft_model

        self.name, self._job, self._micro = "HF generate loop", job, micro_batch
        config = LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = make_model(job)
        self._model: Any = get_peft_model(model, config, autocast_adapter_dtype=False)
        self._model.eval()  # no dropout anywhere; gradients are kept all the same
        trained = [p for p in self._model.parameters() if p.requires_grad]
        self._trained = trained
        self._optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
        self._prompts = make_prompts(job, NUM_PROMPTS).ids
        self._next = 0

    def warm(self) -> None:
        """A short completion through every part."""
        self._run(min(8, self._job.tokens))

    def step(self) -> Step:
        """One step with all tokens."""
        return self._run(self._job.tokens)

    def _run(self, tokens: int) -> Step:
        started = now(self._job)
        prompts = self._take_prompts()
        ids = self._generate(prompts, tokens)
        rolled = now(self._job)
        advantage = _advantages(ids[:, -tokens:].tolist(), self._job)
        pieces = ids.split(self._micro)
        with torch.no_grad(), self._model.disable_adapter():
            reference = [self._logprobs(piece, tokens) for piece in pieces]
        referred = now(self._job)
        kls: list[float] = []
        self._optimizer.zero_grad(set_to_none=True)
        parts = zip(pieces, reference, advantage.split(self._micro), strict=True)
        for piece, kept, worth in parts:
            fresh = self._logprobs(piece, tokens)
            ratio = (fresh - fresh.detach()).exp()
            gap = kept - fresh
            k3 = gap.exp() - gap - 1
            loss = (BETA * k3 - ratio * worth[:, None]).mean() * (len(piece) / len(ids))
            loss.backward()
            kls.append(float(k3.detach().mean()))
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        ended = now(self._job)
        facts = {"k3_token": fmean(kls), "tokens": float(len(ids) * tokens)}
        return Step(rolled - started, referred - rolled, ended - referred, ended - started, facts)

    def _take_prompts(self) -> Tensor:
        count = self._job.completions // GROUP
        chosen = [self._prompts[(self._next + i) % NUM_PROMPTS] for i in range(count)]
        self._next += count
        ids = torch.tensor(chosen, device=self._job.device)
        return ids.repeat_interleave(GROUP, 0)

    @torch.no_grad()
    def _generate(self, prompts: Tensor, tokens: int) -> Tensor:
        ids = self._model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            use_cache=True,
            pad_token_id=0,
        )
        assert ids.shape == (len(prompts), prompts.shape[1] + tokens), ids.shape
        return ids

    def _logprobs(self, ids: Tensor, tokens: int) -> Tensor:
        """Of the completion's tokens, ``[rows, tokens]`` float32."""
        mask = torch.ones_like(ids)
        logits = self._model(
            input_ids=ids, attention_mask=mask, logits_to_keep=tokens + 1, use_cache=False
        ).logits[:, :-1]
        wanted = ids[:, -tokens:]
        losses = [  # row by row: float32 copies of all rows' logits at once are what runs out first
            cross_entropy(row.float(), target, reduction="none")
            for row, target in zip(logits, wanted, strict=True)
        ]
        return -torch.stack(losses)


def _advantages(completions: list[list[int]], job: Job) -> Tensor:
    rewards = torch.tensor([distinct(ids) for ids in completions])
    groups = rewards.view(-1, GROUP)
    spread = groups.std(dim=1, keepdim=True) + 1e-4
    return ((groups - groups.mean(dim=1, keepdim=True)) / spread).flatten().to(job.device)


def now(job: Job) -> float:
    """Seconds, once the device has done all that it was given."""
    if job.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


class Memory:
    """Peak device memory of one contender among several that stay resident, in GB (1e9 bytes)."""

    def __init__(self, job: Job) -> None:
        self._is_cuda = job.device != "cpu"
        self._own: dict[str, int] = {}

    def built(self, name: str, before: int) -> None:
        """What a contender keeps between steps, graphs' pools included; ``before``: :meth:`held` before it was built."""
        self._own[name] = self.held() - before

    def held(self) -> int:
        """Bytes that can't be given back now: what captured graphs write to counts, though nothing points at it."""
        if not self._is_cuda:
            return 0
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def start(self) -> int:
        """Forget the peak; return the bytes in use."""
        if not self._is_cuda:
            return 0
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()

    def peak_gb(self, name: str, in_use: int) -> float | None:
        """Its own share of the peak since :meth:`start`."""
        if not self._is_cuda:
            return None
        return (torch.cuda.max_memory_allocated() - in_use + self._own[name]) / 1e9

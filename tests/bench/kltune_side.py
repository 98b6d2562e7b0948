"""kltune as a contender: a bank over the job's model, one ``train_step`` per request."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from kltune.launch.threads import keep_memory
from kltune.metrics.record import RewardScale
from kltune.spec.control import ControlSpec
from kltune.spec.model import ModelSpec
from kltune.spec.study import EvaluateSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData, encode_all
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.model import load_model
from kltune.trainer.parts import BankSettings
from kltune.trainer.sources import resolve_model
from tests.bench.models import make_prompts
from tests.bench.work import GROUP

if TYPE_CHECKING:
    from tests.bench.child import Channel
    from tests.bench.job import Job

NEVER_ENDS = (10**9,)
"""Stop ids that no model has: every completion gets all its tokens."""


class Distinct:
    """The share of distinct tokens: costs next to nothing and varies."""

    name = "distinct"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score token ids only."""
        return [len(set(s.token_ids)) / (1 + len(s.token_ids)) for s in samples]


def make_bank(job: Job) -> tuple[Bank, EncodedPrompts]:
    """A bank whose slots are all taken, and the prompts it trains on."""
    work = job.work
    spec = ModelSpec(base=job.folder, rank=8, alpha=16, dtype=job.dtype, chat="never")
    loaded = load_model(spec, resolve_model(job.folder, None, Path), "cpu", job.precision)
    loaded = dataclasses.replace(loaded, stop_ids=NEVER_ENDS)
    texts = make_prompts(job.model)
    prompts = [Prompt(id=str(i), text=text) for i, text in enumerate(texts)]
    encoded = encode_all(PromptEncoder(loaded.tokenizer, spec), prompts)
    settings = BankSettings(
        trainer=TrainerSpec(
            steps=10_000,
            prompts=work.prompts,
            group_size=GROUP,
            max_new_tokens=work.tokens,
            learning_rate=1e-4,
            precision=job.precision,
        ),
        evaluate=EvaluateSpec(),
        control=ControlSpec(),
        kl_unit=KLUnit.TOKEN,
        beta_unit=BetaUnit.REWARD,
        scale=RewardScale(
            sigma=0.1, std=0.1, mean=0.0, num_groups=1, mean_tokens=float(work.tokens)
        ),
        compact=True,
    )
    reward = Distinct()
    bank = Bank(loaded, TaskData(encoded, encoded, reward, reward), settings, spec, job.slots)
    for slot in range(job.slots):
        number = job.first_trial + slot
        trial = {"beta": 0.04, "penalty": "k3-loss", "learning_rate": 1e-4, "seed": number}
        bank.admit(slot, number, TrialSpec.model_validate(trial), None)
    return bank, encoded


def run(job: Job, channel: Channel) -> None:
    """Answer until the parent is done. Phases are seconds of the whole process's step."""
    torch.set_num_threads(job.threads)
    keep_memory()
    bank, encoded = make_bank(job)
    channel.reply({"prompt_tokens": fmean(len(ids) for ids in encoded.ids)})
    while channel.is_asked():
        start = time.perf_counter()
        metrics = bank.train_step()
        seconds = time.perf_counter() - start
        names = sorted(name for name in metrics[0].values if name.startswith("time/"))
        phases = {
            name.removeprefix("time/").removesuffix("_s"): sum(m.values[name] for m in metrics)
            for name in names
        }
        tokens = sum(m.tokens for m in metrics)
        completions = job.work.completions * job.slots
        answer = {"seconds": seconds, "phases": phases, "tokens": tokens}
        channel.reply({**answer, "mean_length": tokens / completions})

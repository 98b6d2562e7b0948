"""TRL's GRPOTrainer as a contender: it trains in one go, and a callback holds it between steps."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tests.bench.models import make_prompts
from tests.bench.work import GROUP

if TYPE_CHECKING:
    from tests.bench.child import Channel
    from tests.bench.job import Job


class Clock:
    """Seconds of the step that runs, by phase; nested calls know where they are."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lengths: list[int] = []
        self.is_preparing = False

    def add(self, phase: str, seconds: float) -> None:
        """Count towards the step that runs."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def wrap(self, owner: Any, method: str, phase: str) -> None:
        """Time every call of a method."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            was, self.is_preparing = self.is_preparing, self.is_preparing or phase == "prepare"
            try:
                return inner(*args, **kwargs)
            finally:
                self.is_preparing = was
                # Log-probs outside the preparation are the policy's, inside the loss.
                if phase != "reference" or self.is_preparing:
                    self.add(phase, time.perf_counter() - start)

        setattr(owner, method, timed)

    def take(self) -> tuple[dict[str, float], list[int]]:
        """Phases and completion lengths since the last call."""
        seconds, lengths = self.seconds, self.lengths
        self.seconds, self.lengths = {}, []
        update = seconds.get("step", 0.0) - seconds.get("prepare", 0.0)
        phases = {name: seconds.get(name, 0.0) for name in ("rollout", "reference", "score")}
        return {**phases, "update": update}, lengths


def run(job: Job, channel: Channel) -> None:
    """Answer until the parent is done."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(job.threads)
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        trainer = make_trainer(job, clock, folder)
        trainer.add_callback(_holder(channel, clock, trainer, job))
        trainer.train()


def make_trainer(job: Job, clock: Clock, folder: str) -> Any:
    """TRL's trainer on the same work; ``checkpointing`` and bf16 are TRL's own defaults."""
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    transformers.logging.set_verbosity_error()

    def distinct(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        clock.lengths += [len(ids) for ids in completion_ids]
        return [len(set(ids)) / (1 + len(ids)) for ids in completion_ids]

    work = job.work
    config = GRPOConfig(
        output_dir=folder,
        beta=0.04,
        num_generations=GROUP,
        per_device_train_batch_size=work.completions,
        gradient_accumulation_steps=1,
        max_completion_length=work.tokens,
        generation_kwargs={"min_new_tokens": work.tokens},
        max_steps=10_000,
        learning_rate=1e-4,
        temperature=1.0,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        bf16=job.precision == "bf16",
        gradient_checkpointing=job.checkpointing,
        model_init_kwargs={"dtype": job.dtype},
    )
    trainer: Any = GRPOTrainer(
        model=job.folder,
        reward_funcs=distinct,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": make_prompts(job.model)}),
        processing_class=AutoTokenizer.from_pretrained(job.folder),
        peft_config=LoraConfig(
            r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    clock.wrap(trainer.accelerator.unwrap_model(trainer.model), "generate", "rollout")
    clock.wrap(trainer, "_get_per_token_logps_and_entropies", "reference")
    clock.wrap(trainer, "_calculate_rewards", "score")
    clock.wrap(trainer, "_prepare_inputs", "prepare")
    clock.wrap(trainer, "training_step", "step")
    return trainer


def _holder(channel: Channel, clock: Clock, trainer: Any, job: Job) -> Any:
    from transformers.trainer_callback import PrinterCallback, TrainerCallback

    trainer.remove_callback(PrinterCallback)

    class Holder(TrainerCallback):
        """A step runs from one request to the next ``on_step_end``: loader and logging are in it."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            tokenizer = trainer.processing_class
            ids = tokenizer(make_prompts(job.model))["input_ids"]
            channel.reply({"prompt_tokens": fmean(len(row) for row in ids)})
            self._wait()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds = time.perf_counter() - self._start
            phases, lengths = clock.take()
            answer = {"seconds": seconds, "phases": {**phases, "step": seconds}}
            channel.reply({**answer, "tokens": sum(lengths), "mean_length": fmean(lengths)})
            self._wait()

        def _wait(self) -> None:
            if not channel.is_asked():
                os._exit(0)
            clock.take()
            self._start = time.perf_counter()

    return Holder()

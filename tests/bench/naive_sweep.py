"""The kitchen sweep as people write it without kltune: TRL in an Optuna loop with MLflow, one trial after another.

    python tests/bench/naive_sweep.py --out FILE.json [--trials 3] [--steps 80] [--threads 2]

Runs a few full trials of sweeps/kitchen.yaml (model, prompts, learned proxy, stop tokens, 8 prompts x
8 completions x 32 tokens, 80 steps, gold on 64 select prompts x 2 samples every 10 steps) and
scales them to its 24, without pruning. Nothing is measured but what such a script would do: no
exact KL, no checkpoints. Start-up (imports, databases, proxy) is counted once. 4 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from kltune.launch.threads import share_cores
from tests.bench.totals import TrialTime, total, total_text

if TYPE_CHECKING:
    from kltune.launch.assemble import Ground
    from kltune.tasks.protocol import Prompt, Sample

ROOT = Path(__file__).parents[2]


class Script:
    """What such a script holds: data, scorers, and the settings that all trials share."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        """Load everything once."""
        import torch
        from transformers import AutoTokenizer

        from kltune.launch.assemble import find_inputs, load_ground
        from kltune.spec.load import load_spec
        from kltune.trainer.data import spread_evenly

        torch.set_num_threads(args.threads)
        loaded_spec = load_spec(ROOT / "sweeps" / "kitchen.yaml", ())
        inputs = find_inputs(loaded_spec)
        self.spec, self.folder, self.steps = loaded_spec.spec, folder, args.steps
        self.ground: Ground = load_ground(self.spec, inputs, None)
        self.model = inputs.source.pretrained
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.model, padding_side="left")
        data = self.ground.data
        for prompt, ids in zip(data.train.prompts, data.train.ids, strict=True):
            assert tuple(self.tokenizer(prompt.text)["input_ids"]) == ids, "other prompts"
        self.by_text = {p.text: p for p in (*data.train.prompts, *data.select.prompts)}
        picks = spread_evenly(len(data.select), self.spec.evaluate.prompts)
        self.judged = [data.select.prompts[i] for i in picks for _ in range(2)]

    def samples(self, prompts: Sequence[Prompt], ids: Sequence[Sequence[int]]) -> list[Sample]:
        """Completions as the scorers take them."""
        from kltune.tasks.protocol import Sample

        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        stop = self.tokenizer.eos_token_id
        return [
            Sample(prompt, text, tuple(row), bool(row) and row[-1] == stop)
            for prompt, text, row in zip(prompts, texts, ids, strict=True)
        ]

    def reward(
        self, prompts: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float | None]:
        """The task's proxy, in the form that TRL asks for."""
        known = [self.by_text[text] for text in prompts]
        return list(self.ground.data.proxy(self.samples(known, completion_ids)))

    def gold(self, model: Any) -> float:
        """Mean gold of two fresh samples per select prompt."""
        import torch

        tokenizer = self.tokenizer
        batch = tokenizer([p.text for p in self.judged], return_tensors="pt", padding=True)
        limit, was_training = self.spec.trainer.max_new_tokens, model.training
        model.eval()
        with torch.no_grad():
            out = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                do_sample=True,
                top_k=0,
                max_new_tokens=limit,
                pad_token_id=tokenizer.pad_token_id,
            )
        model.train(was_training)
        width = batch["input_ids"].shape[1]
        rows = [_until(row, tokenizer.eos_token_id) for row in out[:, width:].tolist()]
        return fmean(
            float(x or 0.0) for x in self.ground.data.gold(self.samples(self.judged, rows))
        )


def _until(row: list[int], stop: int) -> list[int]:
    return row[: row.index(stop) + 1] if stop in row else row


def make_trainer(script: Script, beta: float, name: str, seed: int) -> Any:
    """TRL's trainer at its fastest simple setting on a CPU: fp32, no checkpointing."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers.trainer_callback import PrinterCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    settings = script.spec.trainer
    config = GRPOConfig(
        output_dir=str(script.folder / name),
        run_name=name,
        seed=seed,
        beta=beta,
        num_generations=settings.group_size,
        per_device_train_batch_size=settings.prompts * settings.group_size,
        max_completion_length=settings.max_new_tokens,
        max_steps=script.steps,
        learning_rate=settings.learning_rate,
        report_to="mlflow",
        use_cpu=True,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
    )
    prompts = [prompt.text for prompt in script.ground.data.train.prompts]
    rank = script.spec.model.rank
    lora = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    trainer: Any = GRPOTrainer(
        model=script.model,
        reward_funcs=script.reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=script.tokenizer,
        peft_config=lora,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _judge(script: Script) -> Any:
    import mlflow
    from transformers.trainer_callback import TrainerCallback

    class Judge(TrainerCallback):
        """Gold at step 0, every so many steps and at the end, to MLflow."""

        def __init__(self) -> None:
            self.golds: list[float] = []
            self.lengths: list[float] = []
            self.seconds = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
            self._take(state.global_step, kw["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
            step = state.global_step
            if step % script.spec.evaluate.every == 0 or step == script.steps:
                self._take(step, kw["model"])

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kw: Any) -> None:
            if "completions/mean_length" in (logs or {}):
                self.lengths.append(logs["completions/mean_length"])

        def _take(self, step: int, model: Any) -> None:
            start = time.perf_counter()
            self.golds.append(script.gold(model))
            mlflow.log_metric("gold", self.golds[-1], step=step)
            self.seconds += time.perf_counter() - start

    return Judge()


def make_objective(script: Script, times: list[TrialTime]) -> Callable[[Any], float]:
    """What Optuna calls: one whole trial."""
    import mlflow

    span = script.spec.search.beta.log
    assert span is not None
    low, high = span

    def objective(trial: Any) -> float:
        start = time.perf_counter()
        beta = trial.suggest_float("beta", low, high, log=True)
        trainer = make_trainer(script, beta, f"trial-{trial.number}", trial.number)
        judge = _judge(script)
        trainer.add_callback(judge)
        made = time.perf_counter()
        trainer.train()
        trained = time.perf_counter()
        mlflow.end_run()
        took = TrialTime(
            whole_s=time.perf_counter() - start,
            make_s=made - start,
            steps_s=trained - made - judge.seconds,
            evaluate_s=judge.seconds,
            mean_length=fmean(judge.lengths),
        )
        times.append(took)
        print(f"trial {trial.number}: beta {beta:.3g}, {took}, gold {judge.golds}", flush=True)
        return max(judge.golds)

    return objective


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Start up, run the trials, and scale them."""
    import mlflow
    import optuna
    import transformers

    transformers.logging.set_verbosity_error()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_experiment("naive")
    script = Script(args, folder)
    import_module("trl.trainer.grpo_trainer")  # counted as start-up, as a script's imports are

    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'optuna.db'}",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
    )
    start_up = time.time() - psutil.Process().create_time()
    times: list[TrialTime] = []
    study.optimize(make_objective(script, times), n_trials=args.trials)
    found = total(times, start_up, script.spec.budget.trials)
    print(total_text(found))
    middle = median(t.steps_s for t in times) / args.steps
    return {**found, "steps": args.steps, "threads": args.threads, "step_s": middle}


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    share_cores()
    os.environ.update(HF_HUB_OFFLINE="1", MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="1")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{Path(folder) / 'mlflow.db'}"
        os.environ["MLFLOW_EXPERIMENT_NAME"] = "naive"
        found = run(args, Path(folder))
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

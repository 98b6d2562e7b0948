"""Logs that TRL's GRPOTrainer writes on the built-in kitchen task: settings in, one trainer_state.json each out.

    python tests/bench/trl_logs.py --out tests/diagnose/logs [--runs healthy beta_zero ...] [--steps 40]

The logs that ``kltune diagnose`` is tested on. Gold rides along as a second reward of weight 0, as
people do it in TRL. 2 minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.naive_sweep import Script

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP, COMPLETIONS = 8, 32

RUNS: dict[str, dict[str, Any]] = {
    "healthy": {"beta": 0.04, "learning_rate": 3e-3},
    "beta_zero": {"beta": 0.0, "learning_rate": 3e-3},
    "beta_huge": {"beta": 1000.0, "learning_rate": 3e-3},
    "learning_rate_x100": {"beta": 0.04, "learning_rate": 0.3},
    "no_spread": {"beta": 0.04, "learning_rate": 3e-3},
    "over_optimised": {"beta": 1e-3, "learning_rate": 6e-3, "max_steps": 120},
}


def train(script: Script, name: str, folder: Path) -> dict[str, Any]:
    """One run; what TRL's trainer_state.json holds of it."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers.trainer_callback import PrinterCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    settings = script.spec.trainer
    config = GRPOConfig(
        output_dir=str(folder / name),
        seed=0,
        num_generations=GROUP,
        per_device_train_batch_size=COMPLETIONS,
        max_completion_length=settings.max_new_tokens,
        reward_weights=[1.0, 0.0],
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        **{"max_steps": script.steps, **RUNS[name]},
    )
    rank = script.spec.model.rank
    trainer: Any = GRPOTrainer(
        model=script.model,
        reward_funcs=[_constant if name == "no_spread" else script.reward, _gold(script)],
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [prompt.text for prompt in script.ground.data.train.prompts]}
        ),
        processing_class=script.tokenizer,
        peft_config=LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_state()
    return json.loads((folder / name / "trainer_state.json").read_text(encoding="utf-8"))


def _constant(prompts: list[str], **_: Any) -> list[float | None]:
    return [1.0 for _ in prompts]


def _gold(script: Script) -> Callable[..., list[float | None]]:
    def gold(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        samples = script.samples([script.by_text[text] for text in prompts], completion_ids)
        return [float(x or 0.0) for x in script.ground.data.gold(samples)]

    return gold


def _small(state: dict[str, Any]) -> str:
    """The same as JSON, with five digits a number and one row a line."""
    rows = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in state["log_history"]
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    head = json.dumps({**state, "log_history": "ROWS"}, indent=1)
    return head.replace('"ROWS"', f"[\n{lines}\n]") + "\n"


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.update(HF_HUB_OFFLINE="1", DO_NOT_TRACK="1")
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        script = Script(args, Path(scratch))
        for name in args.runs:
            text = _small(train(script, name, Path(scratch)))
            (args.out / f"{name}.json").write_text(text, encoding="utf-8")
            print(f"{name}: {len(text)} bytes", flush=True)


if __name__ == "__main__":
    main()

"""The sweeps of `sweeps/` that need a hub or a GPU: with stand-ins of the same architecture and columns, offline."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stand_ins

from kltune.cli import main
from kltune.spec.load import load_spec
from kltune.trial.record import read_trials

pytest.importorskip("datasets")

SWEEPS = Path(__file__).parents[2] / "sweeps"

SIZES = {
    "trainer.steps": 2,
    "trainer.prompts": 2,
    "trainer.group_size": 2,
    "trainer.max_new_tokens": 6,
    "trainer.device": "cpu",
    "evaluate.every": 2,
    "evaluate.prompts": 4,
    "evaluate.samples": 1,
    "budget.slots": 2,
    "budget.workers": 1,
    "tracking.enabled": "false",
}
"""What a test changes besides ids and paths."""


@dataclass(frozen=True)
class Case:
    """A sweep, and what stands in for what it would download."""

    make: Callable[[Path], dict[str, object]]
    trials: int
    """Baselines, beta = 0 and noise repeats, and one that is searched."""


def _questions(start: int, count: int) -> list[dict[str, object]]:
    """As openai/gsm8k has them; the answers are 2 and 3, which the stand-in likes to write."""
    return [
        {
            "question": f"On day {n} Ann has {n} apples and sells {n - 2 - n % 2}. How many are left?",
            "answer": f"{n}-{n - 2 - n % 2}=<<{n}-{n - 2 - n % 2}={2 + n % 2}>> are left.\n#### {2 + n % 2}",
        }
        for n in range(start, start + count)
    ]


def gsm8k(folder: Path) -> dict[str, object]:
    rows = {"train": _questions(2, 12), "test": _questions(40, 12)}
    return {
        "task.prompts.path": stand_ins.save_rows(folder / "gsm8k", **rows),
        "task.prompts.dataset": "null",
        "task.prompts.config": "null",
        "model.base": stand_ins.save_policy(
            folder / "qwen",
            "Qwen2",
            chat=True,
            favours=("2", "3", stand_ins.STOP),
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
        "trainer.max_new_tokens": 2,
        "trainer.group_size": 8,
    }


def _posts(start: int, count: int) -> list[dict[str, object]]:
    """As trl-lib/tldr has them."""
    return [
        {
            "prompt": f"SUBREDDIT: r/AskReddit\n\nTITLE: Story {n}\n\nPOST: It rained {n} days.\n\nTL;DR:",
            "completion": f" {n} days of rain",
        }
        for n in range(start, start + count)
    ]


def tldr(folder: Path) -> dict[str, object]:
    rows = {"train": _posts(0, 12), "validation": _posts(100, 6), "test": _posts(200, 6)}
    one = ["LABEL_0"]
    return {
        "task.prompts.path": stand_ins.save_rows(folder / "tldr", **rows),
        "task.prompts.dataset": "null",
        "model.base": stand_ins.save_policy(folder / "sft", "GPTNeoX"),
        "task.proxy.model": stand_ins.save_classifier(folder / "rm-1b", "GPTNeoX", one),
        "task.gold.model": stand_ins.save_classifier(
            folder / "rm-2.8b", "GPTNeoX", one, num_hidden_layers=3
        ),
    }


def _reviews(start: int, count: int) -> list[dict[str, object]]:
    """As stanfordnlp/imdb has them."""
    words = ("dull", "fine", "loud", "slow", "warm", "odd")
    return [
        {
            "text": f"Film {n} was {words[n % 6]} from the first scene on.<br /><br />{'I slept. ' * 40}",
            "label": n % 2,
        }
        for n in range(start, start + count)
    ]


def imdb(folder: Path) -> dict[str, object]:
    rows = {
        "train": _reviews(0, 12),
        "test": _reviews(50, 12),
        "unsupervised": _reviews(90, 12),
    }
    signs = ["NEGATIVE", "POSITIVE"]
    return {
        "task.prompts.path": stand_ins.save_rows(folder / "imdb", **rows),
        "task.prompts.dataset": "null",
        "model.base": stand_ins.save_policy(
            folder / "gpt2", "GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=128
        ),
        "task.proxy.model": stand_ins.save_classifier(
            folder / "distilbert", "DistilBert", signs, dim=32, hidden_dim=48, n_layers=2, n_heads=4
        ),
        "task.gold.model": stand_ins.save_classifier(folder / "roberta", "Roberta", signs),
    }


def smollm2(folder: Path) -> dict[str, object]:
    if importlib.util.find_spec("vaderSentiment") is None:
        pytest.skip("the task everyday needs vaderSentiment: pip install 'kltune[smollm2]'")
    return {
        "model.base": stand_ins.save_policy(
            folder / "smollm2",
            "Llama",
            chat=True,
            favours=(
                "a",
                "\u0120",
                ".",
                stand_ins.STOP,
            ),  # words and ends, so that gold tells texts apart
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
        "task.proxy.learned.comparisons": 60,
        "trainer.max_new_tokens": 12,
        "task.proxy.learned.steps": 2,
        "task.proxy.learned.batch": 4,
    }


CASES = {
    "gsm8k-qwen2.5-0.5b": Case(gsm8k, trials=4 + 1 + 2 + 1),
    "tldr-pythia-1b": Case(tldr, trials=3 + 1 + 1 + 1),
    "imdb-gpt2": Case(imdb, trials=3 + 1 + 2 + 1),
    "smollm2-gpu": Case(smollm2, trials=3 + 1 + 2 + 1),
}
EVERY = pytest.mark.parametrize("name", sorted(CASES))


def swept(
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *args: str,
) -> tuple[object, str, str]:
    """``kltune sweep`` of the file itself, ids and sizes changed; what it printed, and where."""
    changes: dict[str, object] = {
        **SIZES,
        **CASES[name].make(folder),
        "budget.trials": CASES[name].trials,
    }
    flags = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder)
    path = os.path.relpath(SWEEPS / f"{name}.yaml", folder)
    monkeypatch.setattr("sys.argv", ["kltune", "sweep", path, "--study", "s", *flags, *args])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return ended.value.code, shown.out, shown.err


def test_every_sweep_that_needs_a_hub_or_a_gpu_is_here() -> None:
    """A new one needs a stand-in; those of the kitchen and of two CPU cores are run elsewhere."""
    files = {path.stem for path in SWEEPS.glob("*.yaml") if not path.stem.startswith("kitchen")}
    assert files - {"smollm2", "smollm2-hump"} == set(CASES)


@EVERY
def test_its_header_says_what_a_person_needs_before_the_start(name: str) -> None:
    lines = (SWEEPS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    for word in ("Needs:", "Hardware:", "Downloads:", "Time:", "Expect:"):
        assert any(line.startswith(f"# {word}") for line in head), word
    assert any("not measured" in line for line in head)
    spec: Any = load_spec(SWEEPS / f"{name}.yaml").spec
    assert spec.name == name
    text = " ".join(line.lstrip("# ") for line in head)
    prompts = getattr(spec.task, "prompts", None)
    ids = [spec.model.base, getattr(prompts, "dataset", None)]
    ids += [
        getattr(getattr(spec.task, side), "model", None) for side in ("proxy", "gold") if prompts
    ]
    assert [one for one in ids if one and "/" in one and one not in text] == []


@pytest.mark.slow
@EVERY
def test_it_dry_runs_offline(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = swept(name, tmp_path, monkeypatch, capsys, "--dry-run")
    assert code == 0, err
    assert f"{CASES[name].trials}" in out
    assert not (tmp_path / "s" / "trials").exists()


@pytest.mark.slow
@EVERY
def test_two_steps_of_every_baseline_run_offline(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = swept(name, tmp_path, monkeypatch, capsys)
    assert code in (0, 3), err
    trials = read_trials(tmp_path / "s")
    assert len(trials) == CASES[name].trials
    for trial in trials:
        assert trial.outcome is not None, err
        assert trial.outcome.verdict.detail == "ran its course of 2 steps"
        assert [row["step"] for row in trial.evals] == [0, 2]
        assert trial.evals[0]["eval/kl_seq"] == pytest.approx(0, abs=1e-5)

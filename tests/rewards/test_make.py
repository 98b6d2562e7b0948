"""Every reward of the spec becomes its scorer, without weights, network or torch where none is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from reward_case import save_classifier
from transformers import GPT2Config, GPT2ForSequenceClassification

from kltune.errors import SpecError
from kltune.rewards.make import RewardContext, make_scorer
from kltune.spec.rewards import RewardSpec
from kltune.tasks.protocol import Prompt, Scorer

PROMPTS = (Prompt("p", "q", {"answer": "1", "tests": "assert True"}),)
JUDGE = {"judge": "m", "url": "http://127.0.0.1:9/v1"}


def made(section: dict[str, Any], folder: Path) -> Scorer:
    spec = TypeAdapter(RewardSpec).validate_python(section)
    return make_scorer(spec, RewardContext("task.gold", folder.joinpath, PROMPTS))


def classifier(folder: Path) -> None:
    config = GPT2Config(
        vocab_size=30, n_positions=32, n_embd=16, n_layer=1, n_head=2, num_labels=1,
        bos_token_id=2, eos_token_id=2,
    )  # fmt: skip
    save_classifier(folder, config, GPT2ForSequenceClassification)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({"model": "rm"}, "reward model rm"),
        ({"verifier": "math"}, "math verifier"),
        ({"verifier": "json"}, "JSON verifier"),
        ({"verifier": "code"}, "code verifier"),
        (JUDGE, "judge m"),
        ({"recorded": "r.jsonl"}, "recorded r.jsonl"),
        ({"win_rate": {"reference": "r.jsonl", "by": JUDGE}}, "win rate against r.jsonl"),
        ({"win_rate": {"reference": "r.jsonl", "by": {"model": "rm"}}}, "win rate against r.jsonl"),
    ],
)
def test_each_becomes_its_scorer(section: dict[str, Any], name: str, tmp_path: Path) -> None:
    classifier(tmp_path / "rm")
    row = {"prompt": "q", "completion": "c", "score": 1}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    scorer = made(section, tmp_path)
    assert scorer.name == name
    assert len(scorer.fingerprint) == 64


def test_a_column_that_the_prompts_lack_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"task\.gold: needs the column\(s\) food, which prompt 'p' lacks"
    ):
        made({**JUDGE, "ask": "{food} {completion}"}, tmp_path)


def test_a_judge_needs_no_torch() -> None:
    script = "import kltune.rewards.make, sys; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", script], check=True)

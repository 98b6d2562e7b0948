from __future__ import annotations

from pathlib import Path

import pytest

from kltune.adopt.source_code import config_call
from kltune.errors import SpecError


def test_literals_and_names_that_are_set_once_are_read() -> None:
    text = """
import trl
BETA = 0.04
RATE: float = -1e-6
def main():
    return trl.GRPOConfig("out", beta=BETA, learning_rate=RATE, loss_type='grpo', top_k=None)
"""
    call = config_call("x.py", text)
    assert call.builder == "GRPOConfig"
    assert call.values == {
        "beta": 0.04,
        "learning_rate": -1e-6,
        "loss_type": "grpo",
        "top_k": None,
    }
    assert call.notes == ()  # its first argument is the folder to write to


def test_what_is_no_literal_is_named() -> None:
    text = "A = 1\nA = 2\nGRPOConfig(beta=A, epsilon=args.eps, num_iterations=2 * 3)\n"
    assert config_call("x.py", text).unreadable == {
        "beta": "A",
        "epsilon": "args.eps",
        "num_iterations": "2 * 3",
    }


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w')\nRLOOConfig(beta=open({str(mark)!r}, 'w'))\n"
    assert config_call("x.py", text).builder == "RLOOConfig"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GRPOConfig(beta=1)\nRLOOConfig(beta=2)\n", "builds 2 configurations (lines 1, 2)"),
        ("x = 1\n", "no GRPOConfig(...) or RLOOConfig(...) is built in it"),
        ("DPOConfig(beta=1)\n", "it builds a DPOConfig"),
        ("def (\n", "not Python that can be read (line 1)"),
        ("\0", "not Python that can be read"),
    ],
)
def test_other_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        config_call("x.py", text)
    assert words in str(caught.value)

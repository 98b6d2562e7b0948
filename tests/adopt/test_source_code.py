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


@pytest.mark.parametrize(
    "cfg",
    [
        "cfg = {'beta': 0.4, 'epsilon': E}\nE = 0.1\nGRPOConfig('x', **cfg)",
        "E = 0.1\nGRPOConfig('x', **{'beta': 0.4, 'epsilon': E})",
        "E = 0.1\nGRPOConfig('x', **dict(beta=0.4, epsilon=E))",
    ],
)
def test_a_dictionary_that_is_written_out_is_read(cfg: str) -> None:
    text = cfg.replace("'epsilon': E}\nE", "'epsilon': 0.1}\nE")
    assert config_call("x.py", text).values == {"beta": 0.4, "epsilon": 0.1}


@pytest.mark.parametrize(
    "text",
    [
        "GRPOConfig(beta=0.1, **more)",
        "cfg = {'beta': 1}\ncfg['beta'] = 2\nGRPOConfig(**cfg)",
        "cfg = {'beta': 1}\ncfg.update(beta=2)\nGRPOConfig(**cfg)",
        "GRPOConfig(**{**a})",
        "GRPOConfig(**dict(a, beta=1))",
    ],
)
def test_one_that_may_hold_the_kls_keys_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"x\.py: line \d: \*\*.* can't be read and may set"):
        config_call("x.py", text)


def test_one_that_can_not_hold_them_is_said() -> None:
    call = config_call("x.py", "RLOOConfig(beta=0.1, num_generations=4, **more)")
    assert call.notes == ("**more is not followed: it may set anything else",)


@pytest.mark.parametrize(
    "change",
    [
        "a.beta = .9",
        "setattr(a, 'beta', .9)",
        "a.beta: float = .9",
        "a.beta = 3\na.beta = .9",
        "a.beta = x\nsetattr(a, 'beta', .9)",
    ],
)
def test_what_is_assigned_after_it_was_built_counts(change: str) -> None:
    found = config_call("x.py", f"a = GRPOConfig(beta=.1)\n{change}\nGRPOTrainer(args=a)\n")
    assert (found.values, found.unreadable) == ({"beta": 0.9}, {})
    other = config_call("x.py", f"b = GRPOConfig(beta=.1)\n{change}\n")
    assert other.values == {"beta": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        "a.beta = f()",
        "a.beta *= 2",
        "if x:\n    a.beta = .9",
        "def f():\n    a.beta = .9",
        "b = replace(a, beta=.9)",
        "setattr(a, 'beta', g)",
    ],
)
def test_a_change_that_is_not_sure_leaves_it_open(change: str) -> None:
    found = config_call("x.py", f"a = GRPOConfig(beta=.1)\n{change}\n")
    assert found.values == {}
    assert list(found.unreadable) == ["beta"]


@pytest.mark.parametrize(
    "change", ["setattr(a, k, 1)", "vars(a).update(x)", "a.__dict__.update(x)"]
)
def test_a_change_of_anything_is_refused(change: str) -> None:
    with pytest.raises(SpecError, match=r"line 2: .* sets something of the configuration"):
        config_call("x.py", f"a = GRPOConfig(beta=.1)\n{change}\n")

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.tasks.sameness import is_same, refuse_same
from kltune.tasks.scorers import load_scorer

BODY = '''
import re
WORD = re.compile("a+")
TABLE = {"a": [1, 2]}
def helper(text): return len(WORD.findall(text)) * SCALE + TABLE["a"][0]
def NAME(prompts, completions, **columns):
    """DOC"""
    return [helper(c) for c in completions]
'''


def write(folder: Path, file: str, name: str, scale: str = "1.0", doc: str = "x") -> str:
    text = BODY.replace("NAME", name).replace("DOC", doc)
    (folder / file).write_text(f"SCALE = {scale}\n{text}", encoding="utf-8")
    return f"{file}:{name}"


def refused(folder: Path, gold: str, proxy: str) -> bool:
    try:
        refuse_same(load_scorer(gold, [folder]), load_scorer(proxy, [folder]))
    except SpecError:
        return True
    return False


def test_the_same_reference_is_refused_with_both_fields(tmp_path: Path) -> None:
    reference = write(tmp_path, "a.py", "f")
    scorer = load_scorer(reference, [tmp_path])
    with pytest.raises(SpecError, match=r"task\.proxy \(a\.py:f\) and task\.gold \(a\.py:f\)"):
        refuse_same(scorer, scorer)


def test_a_copy_in_another_file_under_another_name_is_the_same(tmp_path: Path) -> None:
    first = write(tmp_path, "a.py", "gold", doc="one")
    assert refused(tmp_path, first, write(tmp_path, "b.py", "proxy", doc="another text"))


def test_an_alias_is_the_same(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "gold")
    with (tmp_path / "a.py").open("a", encoding="utf-8") as file:
        file.write("proxy = gold\n")
    assert refused(tmp_path, "a.py:gold", "a.py:proxy")


def test_the_same_code_with_another_module_constant_is_another_scorer(tmp_path: Path) -> None:
    first = write(tmp_path, "a.py", "gold")
    assert not refused(tmp_path, first, write(tmp_path, "b.py", "gold", scale="2.0"))


def test_closures_defaults_and_partials_count() -> None:
    def closing(threshold: float) -> Callable[..., list[float]]:
        return lambda completions: [threshold for _ in completions]

    def defaulting(threshold: float) -> Callable[..., list[float]]:
        return lambda completions, k=threshold: [k for _ in completions]

    def scale(completions: list[str], by: float) -> list[float]:
        return [by for _ in completions]

    for made in (closing, defaulting, lambda by: functools.partial(scale, by=by)):
        assert is_same(made(1.0), made(1.0))
        assert not is_same(made(1.0), made(2.0))


def test_functions_that_call_themselves_are_compared_in_finite_time() -> None:
    def made(worth: float) -> Callable[..., Any]:
        def score(completions: list[str]) -> list[float]:
            return [worth, *score(completions[1:])] if completions else []

        return score

    assert is_same(made(1.0), made(1.0))
    assert not is_same(made(1.0), made(2.0))

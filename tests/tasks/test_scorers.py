from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import (
    CallLimits,
    ScorerError,
    ScorerRaisedError,
    ScorerTimeoutError,
    function_scorer,
    load_scorer,
    split_reference,
)


def sample(text: str, **columns: Any) -> Sample:
    return Sample(Prompt("1", f"say {text}", columns), text, (5, 2), True)


def returning(result: Any) -> Callable[..., Any]:
    return lambda prompts, completions, **columns: result


TWO = [sample("one"), sample("two")]


def test_a_scorer_sees_text_and_columns_by_name_and_no_token() -> None:
    # field case A57
    seen: dict[str, Any] = {}

    def scorer(prompts: list[str], completions: list[str], **columns: list[Any]) -> list[float]:
        seen.update(prompts=prompts, completions=completions, **columns)
        return [1.0, 2.0]

    scores = function_scorer("s", scorer)([sample("ab", food="egg"), sample("cd", food="rice")])
    assert scores == [1.0, 2.0]
    assert seen == {
        "prompts": ["say ab", "say cd"],
        "completions": ["ab", "cd"],
        "food": ["egg", "rice"],
    }


def test_a_function_without_kwargs_gets_only_what_it_names() -> None:
    def scorer(completions: list[str], food: list[str]) -> list[float]:
        return [float(len(c) + len(f)) for c, f in zip(completions, food, strict=True)]

    assert function_scorer("s", scorer)([sample("ab", food="egg", other=1)]) == [5.0]


@pytest.mark.parametrize(
    "result",
    [
        [np.float32(0.5), np.int64(2)],
        np.array([0.5, 2.0], dtype=np.float16),
        torch.tensor([0.5, 2.0]),
        [torch.tensor(0.5), np.array(2)],
        (0.5, 2),
    ],
)
def test_numpy_scalars_arrays_and_tensors_become_plain_floats(result: Any) -> None:
    scores = function_scorer("s", returning(result))(TWO)
    assert scores == [0.5, 2.0]
    assert {type(score) for score in scores} == {float}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ([1.0], "returned 1 score(s) for 2 completion(s)"),
        ([1.0, np.float32("inf")], "returned a float32 (np.float32(inf)) for completion 1"),
        ([10**400, 1.0], "for completion 0 of 2"),
        (["1.0", 1.0], "returned a str ('1.0') for completion 0"),
        ([[1.0], [2.0]], "returned a list ([1.0]) for completion 0"),
        (None, "returned None;"),
        (0.5, "returned 0.5;"),
        ("ab", "returned a str ('ab');"),
        ({0: 1.0, 1: 2.0}, "returned a dict"),
    ],
)
def test_anything_but_a_finite_number_per_completion_is_an_error_that_says_so(
    result: Any, said: str
) -> None:
    with pytest.raises(ScorerError) as caught:
        function_scorer("mine.py:f", returning(result))(TWO)
    message = str(caught.value)
    assert message.startswith("scorer mine.py:f returned")
    assert said in message
    assert message.endswith(
        "expected a list of 2 finite numbers, one per completion (None for one that can't be scored)"
    )


def test_none_and_nan_mean_that_a_completion_could_not_be_scored() -> None:
    scores = function_scorer("s", returning([None, float("nan")]))(TWO)
    assert len(scores) == 2
    assert all(math.isnan(score) for score in scores)


def test_what_a_scorer_raises_is_told_with_its_name() -> None:
    def scorer(prompts: list[str], completions: list[str]) -> list[float]:
        raise ZeroDivisionError("no")

    with pytest.raises(ScorerError, match="scorer s raised ZeroDivisionError: no") as caught:
        function_scorer("s", scorer)(TWO)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_scorer_that_exits_is_a_fault_and_ends_nothing() -> None:
    def scorer(prompts: list[str], completions: list[str]) -> list[float]:
        raise SystemExit(0)

    with pytest.raises(ScorerError, match="scorer s raised SystemExit: 0"):
        function_scorer("s", scorer)(TWO)


def test_a_kltune_error_passes_as_it_is() -> None:
    def scorer(prompts: list[str], completions: list[str]) -> list[float]:
        raise EnvironmentMissingError("no judge")

    with pytest.raises(EnvironmentMissingError, match=r"^no judge$"):
        function_scorer("s", scorer)(TWO)


def test_an_empty_batch_needs_no_call() -> None:
    assert function_scorer("s", returning(None))([]) == []


def test_a_function_that_cannot_be_a_scorer_is_refused_before_the_start() -> None:
    def positional(completions: list[str], /) -> list[float]:
        return []

    def other(prompts: list[str], texts: list[str]) -> list[float]:
        return []

    for function, said in (
        (positional, "position-only"),
        (other, "'completions'"),
    ):
        with pytest.raises(SpecError, match=said):
            function_scorer("s", function)


def test_a_column_that_the_prompts_lack_is_named() -> None:
    def scorer(prompts: list[str], completions: list[str], food: list[str], n: int = 1) -> None: ...

    wrapped = function_scorer("s", scorer)
    wrapped.check_columns(["food", "topic"])
    with pytest.raises(SpecError, match=r"needs the column\(s\) food.*columns there: topic"):
        wrapped.check_columns(["topic"])


def test_a_file_is_found_in_the_first_folder_that_has_it(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "a b é")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"rate{number}.py").write_text(
            f"def f(completions, **_): return [{number}.0] * len(completions)\n", encoding="utf-8"
        )
    folders = [tmp_path / "first", tmp_path / "a b é"]
    scorer = load_scorer("rate1.py:f", folders)
    assert scorer.name == "rate1.py:f"
    assert scorer(TWO) == [1.0, 1.0]
    assert load_scorer(f"{folders[0] / 'rate0.py'}:f", [])(TWO) == [0.0, 0.0]
    with pytest.raises(SpecError, match="no such file") as caught:
        load_scorer("none.py:f", folders)
    assert str(folders[1] / "none.py") in str(caught.value)


def test_a_file_can_import_its_neighbour_and_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_scorer.py").write_text("WORTH = 3.0\n", encoding="utf-8")
    (tmp_path / "scorer.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from neighbour_of_scorer import WORTH\n"
        "@dataclass\nclass Held:\n    x: float\n"
        "def f(completions, **_): return [Held(WORTH).x for _ in completions]\n",
        encoding="utf-8",
    )
    before = list(sys.path)
    assert load_scorer("scorer.py:f", [tmp_path])(TWO) == [3.0, 3.0]
    assert sys.path == before


def test_one_file_is_loaded_once_and_again_after_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "scorer.py"
    text = "def f(completions, **_): return [1.0]\ndef g(completions, **_): return [2.0]\n"
    path.write_text(text, encoding="utf-8")
    first, second = (load_scorer(f"scorer.py:{name}", [tmp_path]) for name in "fg")
    assert first.function.__globals__ is second.function.__globals__
    path.write_text(text.replace("1.0", "9.0"), encoding="utf-8")
    assert load_scorer("scorer.py:f", [tmp_path])([sample("x")]) == [9.0]


def test_a_module_is_found_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "scorer_package_a1").mkdir()
    (tmp_path / "scorer_package_a1" / "rate.py").write_text(
        "def f(completions, **_): return [4.0] * len(completions)\n", encoding="utf-8"
    )
    assert load_scorer("scorer_package_a1.rate:f", [tmp_path])(TWO) == [4.0, 4.0]


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("def g(completions): ...\n", SpecError, "no function 'f'; functions there: g"),
        ("f = 3\n", SpecError, "f is a int, not a function"),
        ("def f(:\n", SpecError, "not valid Python"),
        ("\n1 / 0\n", SpecError, "line 2: ZeroDivisionError: division by zero"),
        ("import no_such_package_zz\n", EnvironmentMissingError, "imports 'no_such_package_zz'"),
    ],
)
def test_code_that_does_not_load_is_told_by_file_and_line(
    tmp_path: Path, source: str, error: type[Exception], said: str
) -> None:
    (tmp_path / "bad.py").write_text(source, encoding="utf-8")
    for _ in range(2):  # a failed import leaves nothing half-made behind
        with pytest.raises(error) as caught:
            load_scorer("bad.py:f", [tmp_path])
        assert said in str(caught.value)
        assert str(caught.value).startswith("bad.py:f: ")


def test_a_module_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no module 'no_such_package_zz'") as caught:
        load_scorer("no_such_package_zz.rate:f", [tmp_path])
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(SpecError, match="not a module name"):
        load_scorer("rewards/rate:f", [tmp_path])


@pytest.mark.parametrize("reference", ["rate.py", "rate.py:", ":f", "rate.py:f g", "rate.py:3"])
def test_a_reference_of_another_form_is_refused(reference: str) -> None:
    with pytest.raises(SpecError, match=r"must look like package\.module:function"):
        split_reference(reference)


def test_where_the_users_function_raised_is_said(tmp_path: Path) -> None:
    source = (
        "import json\n"
        "def deep(text):\n"
        "    return json.loads(text)\n"
        "def mine(completions, **columns):\n"
        "    return [deep(t) for t in completions]\n"
    )
    (tmp_path / "judge.py").write_text(source)
    scorer = load_scorer("judge.py:mine", [tmp_path])
    sample = Sample(Prompt("p", "x"), "{", (1,), ended=True)
    with pytest.raises(
        ScorerRaisedError,
        match=r"raised JSONDecodeError: .* \(judge\.py, line 3\), on prompt 'p', completion '\{'$",
    ):
        scorer([sample])


def picky(completions: list[str]) -> list[float]:
    if "bad" in completions:
        raise ValueError("no bad")
    return [float(len(completions))] * len(completions)


def test_completions_on_which_it_fails_are_passed_over_up_to_a_bound_and_recorded() -> None:
    scorer = function_scorer("r.py:f", picky, limits=CallLimits(5.0, error_share=0.7))
    found = scorer.detail([sample("a"), sample("bad"), sample("b")])
    assert found.values[::2] == [2.0, 2.0]  # the rest is one call
    assert math.isnan(found.values[1])
    (problem,) = found.problems
    assert problem.startswith(
        "prompt '1', completion 'bad': scorer r.py:f raised ValueError: no bad"
    )
    assert all(math.isnan(value) for value in scorer([sample("bad")]))
    with pytest.raises(
        ScorerRaisedError,
        match=r"completion 'bad'; more than 2 of 4 completions \(task\.errors\.share\)",
    ):
        scorer([sample("bad"), sample("bad"), sample("a"), sample("bad")])


def test_a_wrong_value_is_passed_over_as_an_error_is() -> None:
    def sometimes_text(completions: list[str]) -> list[Any]:
        return ["x" if text == "bad" else 1.0 for text in completions]

    scorer = function_scorer("r.py:f", sometimes_text, limits=CallLimits(5.0, error_share=0.1))
    found = scorer.detail([sample("a"), sample("bad")])
    assert found.values[0] == 1.0
    assert "returned a str ('x')" in found.problems[0]


def test_by_default_the_first_error_is_one_and_names_its_completion() -> None:
    with pytest.raises(ScorerRaisedError, match=r", on prompt '1', completion 'bad'$"):
        function_scorer("r.py:f", picky)([sample("a"), sample("bad"), sample("b")])


def test_a_function_that_hangs_is_ended_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import time\ndef f(completions):\n    time.sleep(60)\n", encoding="utf-8"
    )
    scorer = load_scorer("r.py:f", [tmp_path], limits=CallLimits(0.1, error_share=1))
    with pytest.raises(
        ScorerTimeoutError, match=r"within 0\.1 s \(task\.timeout\) \(r\.py, line 3\)$"
    ):
        scorer(TWO)

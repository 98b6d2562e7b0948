"""What counts as the same mathematics; the child itself, line by line."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kltune.rewards.line_worker import LineWorker
from kltune.rewards.verifiers import mathematics_child


@pytest.fixture(scope="module")
def child() -> Generator[LineWorker]:
    pytest.importorskip("math_verify")
    from pathlib import Path

    worker = LineWorker(Path(mathematics_child.__file__))
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("text", "answer", "equal"),
    [
        ("The answer is 72.", "72", True),
        (r"so \boxed{\frac{1}{2}}", "0.5", True),
        (r"first \boxed{3}, no: $4$", "3", True),
        ("It costs $1000", "1,000", True),
        (r"\boxed{5}", r"\frac{10}{2}", True),
        ("12 and 5, 17 in all", "17", True),
        ("17, not 18", "17", False),
        ("$x^2+2x+1$", "$(x+1)^2$", True),
        ("it's 7", "8", False),
        ("", "3", False),
        ("( (((((", "3", False),
        ("5", "", None),
    ],
)
def test_answers_are_compared_as_mathematics(
    child: LineWorker, text: str, answer: str, equal: bool | None
) -> None:
    assert child.ask({"text": text, "answer": answer}, 10) == {"equal": equal}


def test_algebra_without_end_ends_the_child_and_not_us(child: LineWorker) -> None:
    assert child.ask({"text": "$9^{9^{9^{9}}}$", "answer": "3"}, 1) is None
    assert child.ask({"text": "3", "answer": "3"}, 10) == {"equal": True}

from __future__ import annotations

import ast
from pathlib import Path

from kltune.validate import thresholds


def test_every_threshold_has_a_reason_beside_it() -> None:
    body = ast.parse(Path(thresholds.__file__).read_text(encoding="utf-8")).body
    names = [i for i, node in enumerate(body) if isinstance(node, ast.AnnAssign)]
    assert names
    for index in names:
        after = next(node for node in body[index:] if not isinstance(node, ast.AnnAssign))
        assert isinstance(after, ast.Expr)
        assert isinstance(after.value, ast.Constant)


def test_a_fail_is_further_out_than_a_warning() -> None:
    assert thresholds.JUMP_WARN < thresholds.JUMP_FAIL
    assert thresholds.TOKEN_WARN < thresholds.TOKEN_FAIL
    assert thresholds.REPEAT_WARN < thresholds.REPEAT_FAIL

"""What the written file takes for a number, a step and a patience: loggers hand over all kinds of things."""

from __future__ import annotations

import io
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import tripwire_case as case

FINE = {"kl": 0.03, "loss": 0.002, "grad_norm": 1.1}


@pytest.fixture
def made(tmp_path: Path) -> ModuleType:
    return case.load(case.text("trl"), tmp_path)


def verdicts(made: ModuleType, rows: list[Any], steps: list[Any] | None = None) -> list[str]:
    watch = made.Tripwire(out=io.StringIO())
    return [watch.check(*pair) for pair in zip(rows, steps or range(1, 99), strict=False)]


@pytest.mark.parametrize(
    "value",
    [
        0.3,
        "0.3",
        [0.3],
        ([0.3],),
        np.float32(0.3),
        np.array([0.3]),
        np.array([[0.3]]),
        torch.tensor(0.3, requires_grad=True),
        torch.tensor([0.3], requires_grad=True),
        [torch.tensor(0.3)],
    ],
)
def test_whatever_holds_one_number_is_read_without_a_warning(
    value: object, made: ModuleType
) -> None:
    assert verdicts(made, [{**FINE, "kl": value}] * 3)[-1] == "stop"


@pytest.mark.parametrize(
    "value", ["far", "", [], [0.3, 0.4], np.array([0.3, 0.4]), torch.zeros(2), True, [True], b"9"]
)
def test_what_is_no_number_is_no_kl(value: object, made: ModuleType) -> None:
    assert verdicts(made, [{**FINE, "kl": value}] * 5) == ["ok"] * 4 + ["warn"]


def test_a_kl_named_train_kl_is_read(made: ModuleType) -> None:
    assert verdicts(made, [{"train_kl": 0.3, "loss": 0.1}] * 3)[-1] == "stop"


@pytest.mark.parametrize(
    ("framework", "loss", "expected"), [("trl", "loss", "stop"), ("verl", "actor/pg_loss", "ok")]
)
def test_a_loss_of_none_was_not_finite_where_the_trainer_writes_it_so(
    framework: str, loss: str, expected: str, tmp_path: Path
) -> None:
    made = case.load(case.text(framework), tmp_path)
    row = {made.KL_NAMES[0]: 0.03, loss: None}
    assert verdicts(made, [row]) == [expected]


def test_no_metrics_at_all_are_ok_until_it_is_blind(made: ModuleType) -> None:
    assert verdicts(made, [None] * 5) == ["ok"] * 4 + ["warn"]
    assert made.check(None, 1) == "ok"


@pytest.mark.parametrize("step", [None, "40", "forty", math.nan, np.int64(40), torch.tensor(40)])
def test_a_step_of_any_kind_is_tolerated(step: object, made: ModuleType) -> None:
    assert verdicts(made, [FINE] * 3, [step] * 3) == ["ok"] * 3
    watch = made.Tripwire(out=(out := io.StringIO()))
    watch.check({**FINE, "loss": math.nan}, step)
    assert "at step 40:" in out.getvalue() or "at step 1:" in out.getvalue()


def test_without_a_step_looks_are_counted_so_a_stall_is_still_seen(made: ModuleType) -> None:
    rows = [{**FINE, "kl": made.STALLED / 2}] * (made.STALLED_AFTER + made.STALLED_WINDOW)
    assert verdicts(made, rows, [None] * len(rows))[-2:] == ["ok", "warn"]


@pytest.mark.parametrize("patience", [0, -1, 1.5, "3", True, math.nan])
def test_a_patience_that_is_no_whole_number_above_0_is_refused(
    patience: object, made: ModuleType
) -> None:
    with pytest.raises(ValueError, match="patience: must be a whole number of at least 1"):
        made.Tripwire(patience=patience)
    assert made.Tripwire(patience=np.int64(2)).limit_patience == 2


@pytest.mark.parametrize(("step", "said"), [(np.int64(7), "step 7: "), (None, "")])
def test_a_guarded_method_takes_a_numpy_step(step: object, said: str, made: ModuleType) -> None:
    class Logger:
        def log(self, data: dict[str, Any], step: object) -> None:
            return None

    guarded = made.guarded(Logger.log, made.Tripwire(out=io.StringIO()))
    with pytest.raises(made.TripwireStop, match=f"^{said}not finite"):
        guarded(Logger(), {**FINE, "kl": math.nan}, step)

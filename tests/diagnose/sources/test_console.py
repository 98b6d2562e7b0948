from __future__ import annotations

import math
from pathlib import Path

import pytest

from kltune.diagnose.sources.console import has_console_lines, read_console
from kltune.errors import StudyError


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    return path


def test_verls_lines_are_found_among_other_output(tmp_path: Path) -> None:
    raw = read_console(
        _write(
            tmp_path,
            "Training Progress:   1%|  | 1/140\n"
            "\x1b[36m(TaskRunner pid=247607)\x1b[0m step:1 - actor/kl_loss:0.001 - actor/ppo_kl:1.5e-05 - "
            "critic/score/mean:np.float64(0.088) - training/global_step:1\n"
            "(WorkerDict pid=1) loading\n"
            "\x1b[36mstep:2 - actor/kl_loss:nan - val-core/gsm8k/acc/mean@1:0.5\x1b[0m\n",
        )
    )
    assert raw.framework == "verl"
    assert raw.rows[0][1]["actor/kl_loss"] == 0.001
    assert raw.rows[0][1]["critic/score/mean"] == 0.088
    assert math.isnan(raw.rows[1][1]["actor/kl_loss"])
    assert raw.rows[1][1]["val-core/gsm8k/acc/mean@1"] == 0.5
    assert raw.notes == ()


def test_a_part_that_a_crash_cut_short_is_said(tmp_path: Path) -> None:
    raw = read_console(_write(tmp_path, "step:1 - a/kl_loss:0.1 - a/b\nstep:2 - a/kl_loss:0.2\n"))
    assert "1 part of lines that could not be read, e.g. 'a/b'" in raw.notes


def test_a_negative_number_and_a_range_in_a_name_are_no_separator(tmp_path: Path) -> None:
    raw = read_console(_write(tmp_path, "step:3 - actor/pg_loss:-0.5 - a-b/c:1\n"))
    assert raw.rows == ((3, {"actor/pg_loss": -0.5, "a-b/c": 1.0}),)


def test_dicts_that_trl_prints_are_rows(tmp_path: Path) -> None:
    raw = read_console(
        _write(
            tmp_path,
            "{'loss': 0.0, 'kl': 0.01, 'reward': nan, 'epoch': 0.1}\n"
            " 10%|# | {'loss': '0.001', 'kl': '0.02', 'reward': '1.0', 'epoch': 0.2}\n"
            "{'train_runtime': 3.0, 'train_loss': 0.1}\n",
        )
    )
    assert [step for step, _ in raw.rows] == [1, 2]
    assert raw.rows[1][1] == {"loss": 0.001, "kl": 0.02, "reward": 1.0}
    assert math.isnan(raw.rows[0][1]["reward"])
    assert "the number of the row stands for it" in raw.notes[0]


def test_text_without_a_log_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"looked for .*of verl.*TRL"):
        read_console(_write(tmp_path, "hello\nworld\n"))


def test_console_lines_are_told_from_prose() -> None:
    assert has_console_lines("x\nstep:1 - a:2\n")
    assert not has_console_lines("the next step: 1 - buy milk\n")

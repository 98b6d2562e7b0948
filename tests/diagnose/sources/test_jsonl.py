from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kltune.diagnose.sources.jsonl import read_json, read_lines, trainer_state_of
from kltune.errors import StudyError


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_verls_file_log_is_unpacked(tmp_path: Path) -> None:
    lines = [{"step": i, "data": {"actor/kl_loss": i / 10, "critic/score/mean": 1}} for i in (1, 2)]
    path = _write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    raw = read_lines(path)
    assert (raw.kind, raw.framework) == ("verl file log", "verl")
    assert raw.rows[0] == (1, {"actor/kl_loss": 0.1, "critic/score/mean": 1.0})


def test_a_line_that_a_crash_cut_short_is_counted_and_the_others_survive(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "a.jsonl", '{"step": 1, "kl": 0.1}\n{"step": 2, "kl": 0.2}\n{"step": 3, "k'
    )
    raw = read_lines(path)
    assert [step for step, _ in raw.rows] == [1, 2]
    assert raw.notes == ("1 line that could not be read (left out), e.g. line 3",)


def test_a_byte_order_mark_and_words_for_numbers_are_taken(tmp_path: Path) -> None:
    text = '\ufeff{"step": 1, "kl": NaN, "loss": "0.5", "grad_norm": Infinity}\n'
    (step, row) = read_lines(_write(tmp_path / "a.jsonl", text)).rows[0]
    assert step == 1
    assert math.isnan(row["kl"])
    assert (row["loss"], row["grad_norm"]) == (0.5, math.inf)


def test_rows_without_a_step_are_numbered_and_said(tmp_path: Path) -> None:
    raw = read_lines(_write(tmp_path / "a.jsonl", '{"kl": 0.1}\n{"kl": 0.2}\n'))
    assert [step for step, _ in raw.rows] == [1, 2]
    assert "the number of the row stands for it" in raw.notes[0]


def test_a_step_that_is_no_whole_number_is_left_out_and_said(tmp_path: Path) -> None:
    raw = read_lines(
        _write(tmp_path / "a.jsonl", '{"step": 1.5, "kl": 9}\n{"step": 2, "kl": 0.2}\n')
    )
    assert raw.rows == ((2, {"kl": 0.2}),)
    assert "1 row with a step that is no whole number" in raw.notes[0]


def test_lines_without_any_object_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no line of it is a JSON object"):
        read_lines(_write(tmp_path / "a.jsonl", "hello\n[1]\n"))


def test_a_trainer_state_is_a_history_with_facts(tmp_path: Path) -> None:
    state = {
        "global_step": 2,
        "max_steps": 2,
        "log_history": [
            {"step": 1, "epoch": 0.1, "kl": 0.1, "reward": 1.0},
            {"step": 2, "epoch": 0.2, "kl": 0.2, "reward": 1.1},
            {"step": 2, "eval_reward": 0.9},
            {"step": 2, "train_loss": 0.1, "train_runtime": 3.0},
        ],
    }
    raw = read_json(_write(tmp_path / "s.json", json.dumps(state, indent=1)))
    assert (raw.kind, raw.framework, raw.facts) == (
        "TRL trainer_state.json",
        "trl",
        {"max_steps": 2},
    )
    assert raw.rows[1][1]["eval_reward"] == 0.9
    assert raw.rows[1][1]["kl"] == 0.2
    assert raw.notes == ()


def test_a_bare_history_and_series_by_step_are_read(tmp_path: Path) -> None:
    rows = read_json(_write(tmp_path / "a.json", '[{"step": 1, "kl": 0.1}]')).rows
    assert rows == ((1, {"kl": 0.1}),)
    series = '{"train/kl": {"1": 0.1, "2": 0.2}, "train/reward": {"2": 1.0}}'
    rows = read_json(_write(tmp_path / "b.json", series)).rows
    assert rows == ((1, {"train/kl": 0.1}), (2, {"train/kl": 0.2, "train/reward": 1.0}))


@pytest.mark.parametrize("text", ["{", "3", "[]", '{"kl": 0.1}', '{"log_history": []}'])
def test_json_without_a_history_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StudyError):
        read_json(_write(tmp_path / "a.json", text))


def test_trls_none_for_a_kl_that_was_never_a_number_is_broken_and_not_missing(
    tmp_path: Path,
) -> None:
    rows = [{"step": 1, "kl": 0.1, "reward": None}, {"step": 2, "kl": None, "reward": None}]
    state = {"global_step": 2, "log_history": rows}
    raw = read_json(_write(tmp_path / "s.json", json.dumps(state)))
    assert raw.rows[0] == (1, {"kl": 0.1})
    assert math.isnan(raw.rows[1][1]["kl"])


def test_the_last_checkpoint_holds_the_longest_history(tmp_path: Path) -> None:
    for number in (9, 100, 20):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        _write(folder / "trainer_state.json", "{}")
    assert trainer_state_of(tmp_path) == tmp_path / "checkpoint-100/trainer_state.json"
    assert trainer_state_of(tmp_path / "absent") is None


def test_a_hundred_thousand_lines_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f'{{"step": {i}, "kl": 0.1}}\n' for i in range(100_000))
    assert len(read_lines(path).rows) == 100_000


def test_nesting_deeper_than_any_log_is_a_message(tmp_path: Path) -> None:
    deep = 100_000
    with pytest.raises(StudyError, match="nested deeper than any log"):
        read_json(_write(tmp_path / "a.json", "[" * deep + "]" * deep))


def test_a_row_nested_absurdly_deep_does_no_harm_to_its_other_numbers(tmp_path: Path) -> None:
    nested = '{"a": ' * 150 + "1" + "}" * 150
    path = _write(tmp_path / "a.jsonl", f'{{"step": 1, "kl": 0.1, "b": {nested}}}\n')
    assert read_lines(path).rows == ((1, {"kl": 0.1}),)


def test_what_is_no_number_is_remembered_by_its_name(tmp_path: Path) -> None:
    text = '{"step": 1, "kl": "hello", "loss": 1, "other": null}\n{"step": 2, "kl": [1]}\n'
    assert read_lines(_write(tmp_path / "a.jsonl", text)).texts == {"kl": "step 1: 'hello'"}

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.spec.task import SplitsSpec
from kltune.tasks.prompts import column_names, digest_prompts, load_prompts
from kltune.tasks.protocol import Prompt, Splits

HALVES = SplitsSpec()


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "prompts.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def txt(folder: Path, text: str) -> Path:
    path = folder / "prompts.txt"
    path.write_bytes(text.encode("utf-8"))
    return path


def refusal(path: Path, splits: SplitsSpec = HALVES) -> str:
    with pytest.raises(SpecError) as caught:
        load_prompts(path, splits)
    return str(caught.value)


def texts(prompts: tuple[Prompt, ...]) -> list[str]:
    return [prompt.text for prompt in prompts]


def everything(splits: Splits) -> list[Prompt]:
    return [*splits.train, *splits.select, *splits.test]


def split_rows(**extra: object) -> list[dict[str, object]]:
    names = ("train", "train", "select", "select", "test", "test")
    return [{"prompt": f"p{i}", "split": name, **extra} for i, name in enumerate(names)]


def test_a_split_column_decides_and_keeps_the_order(tmp_path: Path) -> None:
    splits = load_prompts(jsonl(tmp_path, *split_rows()), HALVES)
    assert texts(splits.train) == ["p0", "p1"]
    assert texts(splits.select) == ["p2", "p3"]
    assert texts(splits.test) == ["p4", "p5"]


def test_other_fields_become_columns_of_every_prompt(tmp_path: Path) -> None:
    rows = split_rows(food="egg")
    rows[0]["answer"] = 4
    splits = load_prompts(jsonl(tmp_path, *rows), HALVES)
    assert dict(splits.train[0].columns) == {"food": "egg", "answer": 4}
    assert dict(splits.test[1].columns) == {"food": "egg", "answer": None}
    assert column_names(splits) == ("answer", "food")


def test_ids_are_the_files_own_or_say_the_line(tmp_path: Path) -> None:
    rows = split_rows()
    rows[0]["id"] = "egg-1"
    rows[1]["id"] = 7
    splits = load_prompts(jsonl(tmp_path, *rows), HALVES)
    assert [prompt.id for prompt in everything(splits)] == [
        "egg-1", "7", "line-3", "line-4", "line-5", "line-6",
    ]  # fmt: skip


def test_shares_divide_a_text_file_whole_and_the_same_for_a_seed(tmp_path: Path) -> None:
    path = txt(tmp_path, "\ufeff" + "".join(f"question {i}\r\n\r\n" for i in range(40)))
    splits = load_prompts(path, HALVES)
    assert [len(splits.train), len(splits.select), len(splits.test)] == [20, 10, 10]
    assert sorted(texts(tuple(everything(splits)))) == sorted(f"question {i}" for i in range(40))
    assert load_prompts(path, HALVES) == splits
    assert load_prompts(path, SplitsSpec(seed=1)) != splits


def test_shares_are_relative_to_their_sum(tmp_path: Path) -> None:
    path = txt(tmp_path, "".join(f"q{i}\n" for i in range(10)))
    splits = load_prompts(path, SplitsSpec(train=6, select=2, test=2))
    assert [len(splits.train), len(splits.select), len(splits.test)] == [6, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_equal_prompts_stay_in_one_split(tmp_path: Path, seed: int) -> None:
    lines = [f"question {i}" for i in range(12)]
    path = txt(tmp_path, "\n".join([*lines, *(f"  QUESTION  {i} " for i in range(12))]))
    splits = load_prompts(path, SplitsSpec(seed=seed))
    by_split = [
        {" ".join(t.lower().split()) for t in texts(part)}
        for part in (splits.train, splits.select, splits.test)
    ]
    assert sum(map(len, by_split)) == len(set.union(*by_split)) == 12
    assert len(everything(splits)) == 24


def test_the_same_prompt_in_two_splits_is_refused_with_its_lines(tmp_path: Path) -> None:
    rows = [*split_rows(), {"prompt": " P0 ", "split": "test"}]
    message = refusal(jsonl(tmp_path, *rows))
    assert "lines 1 (train), 7 (test)" in message
    assert "more than one split" in message


def test_a_repeat_within_a_split_is_allowed(tmp_path: Path) -> None:
    splits = load_prompts(
        jsonl(tmp_path, *split_rows(), {"prompt": "p0", "split": "train"}), HALVES
    )
    assert texts(splits.train) == ["p0", "p1", "p0"]


def test_all_bad_lines_are_told_at_once(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        {"prompt": "fine", "split": "train"},
        '{"prompt": "cut',
        {"question": "no prompt"},
        {"prompt": ["a", "list"]},
        {"prompt": "  "},
        {"prompt": "x", "split": "valid"},
        ["prompt"],
        {"prompt": "x", "completions": 1},
        {"prompt": "x", "id": True},
        '{"prompt": "x", "weight": NaN}',
    )
    message = refusal(path)
    assert message.startswith(f"task.prompts: {path}: 9 problem(s)\n")
    for expected in (
        "line 2: not JSON",
        "line 3: field 'prompt' is missing (fields here: question)",
        "line 4: field 'prompt' must be text (got a list)",
        "line 5: field 'prompt' is empty",
        "line 6: field 'split' must be one of train, select, test (got 'valid')",
        'line 7: must be an object like {"prompt": "..."} (got a list)',
        "line 8: field 'completions' has a name that scorers use",
        "line 9: field 'id' must be text or a whole number (got true or false)",
        "line 10: not JSON (NaN is no JSON number)",
    ):
        assert expected in message


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    message = refusal(jsonl(tmp_path, *["{"] * 30))
    assert "30 problem(s)" in message
    assert message.endswith("... and 20 more")


def test_a_split_on_some_lines_only_is_refused(tmp_path: Path) -> None:
    message = refusal(jsonl(tmp_path, *split_rows(), {"prompt": "p9"}))
    assert "line 7: field 'split' is missing, though other lines have it" in message


def test_a_shared_id_is_refused(tmp_path: Path) -> None:
    rows = split_rows()
    rows[1]["id"] = rows[4]["id"] = "same"
    assert "lines 2, 5: the same id 'same'" in refusal(jsonl(tmp_path, *rows))


@pytest.mark.parametrize("text", ["", "\n \n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    assert "the file holds no prompts" in refusal(txt(tmp_path, text))


def test_too_few_prompts_for_a_split_name_the_split(tmp_path: Path) -> None:
    message = refusal(txt(tmp_path, "a\nb\nc\nd\n"))
    assert "split select has 1 distinct prompt(s), at least 2 are needed" in message
    assert "task.splits.select (now 0.25)" in message
    assert "split train" not in message
    message = refusal(jsonl(tmp_path, *split_rows()[:5]))
    assert "split test has 1 distinct prompt(s)" in message
    assert "more lines need this split" in message


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jsonl") == (
        f"task.prompts: {tmp_path / 'none.jsonl'}: 1 problem(s)\n  no such file"
    )
    folder = tmp_path / "folder.txt"
    folder.mkdir()
    assert "can't be read" in refusal(folder)


def test_another_kind_of_file_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    message = refusal(tmp_path / "prompts.xlsx")
    assert ".jsonl" in message
    assert ".txt" in message


def test_bytes_that_are_not_utf8_are_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    assert "line 2: not UTF-8 text (byte 0xe9)" in refusal(path)


def test_half_a_surrogate_pair_is_refused_before_a_tokenizer_meets_it(tmp_path: Path) -> None:
    assert "line 1: field 'prompt' holds half" in refusal(jsonl(tmp_path, '{"prompt": "a\\ud83d"}'))


def test_a_path_with_space_and_accent_and_text_in_any_script_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "é"
    folder.mkdir(parents=True)
    rows = split_rows()
    rows[0]["prompt"] = "один\u2028два 🙂"
    splits = load_prompts(jsonl(folder, *rows), HALVES)
    assert splits.train[0].text == "один\u2028два 🙂"


def test_a_digest_moves_with_text_order_and_columns_and_nothing_else() -> None:
    first, second = Prompt("1", "a", {"x": 1, "y": 2}), Prompt("2", "é")
    digest = digest_prompts([first, second])
    assert len(digest) == 64
    assert digest == digest_prompts([Prompt("1", "a", {"y": 2, "x": 1}), second])
    others = ([second, first], [first, Prompt("2", "e")], [Prompt("1", "a", {"x": 1}), second])
    assert digest not in [digest_prompts(prompts) for prompts in others]

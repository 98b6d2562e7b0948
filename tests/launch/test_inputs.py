"""A study does not mix two versions of its prompts, scorers or model under one name."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import own_task, write

from kltune.errors import StudyError
from kltune.launch.assemble import find_inputs
from kltune.launch.inputs import check_inputs, fingerprints, note_inputs
from kltune.metrics.jsonl import read_json
from kltune.spec.load import load_spec

CODE = "def proxy(completions): return [len(c) for c in completions]\n"


def prints_of(folder: Path, code: str, prompts: int = 12) -> dict[str, str]:
    spec = own_task(folder)
    (folder / "rewards.py").write_text(
        code + "def gold(completions): return [1.0 for c in completions]\n", encoding="utf-8"
    )
    lines = "".join(f"question {i}\n" for i in range(prompts))
    (folder / "prompts.txt").write_text(lines, encoding="utf-8")
    inputs = find_inputs(load_spec(write(folder, spec)))
    return fingerprints(inputs.task, inputs.source)


def test_another_reward_under_the_same_name_is_refused_by_name(tmp_path: Path) -> None:
    study = tmp_path / "study"
    note_inputs(study, prints_of(tmp_path, CODE))
    changed = prints_of(tmp_path, CODE.replace("len(c)", "-len(c)"))
    with pytest.raises(StudyError, match="gold, proxy changed"):
        check_inputs(study, changed)


def test_a_comment_is_no_change(tmp_path: Path) -> None:
    study = tmp_path / "study"
    note_inputs(study, prints_of(tmp_path, CODE))
    check_inputs(study, prints_of(tmp_path, "# said better\n" + CODE))


def test_other_prompts_are_refused(tmp_path: Path) -> None:
    study = tmp_path / "study"
    note_inputs(study, prints_of(tmp_path, CODE))
    with pytest.raises(StudyError, match=r"prompts \(train\)"):
        check_inputs(study, prints_of(tmp_path, CODE, prompts=13))


def test_what_the_first_session_saw_is_kept(tmp_path: Path) -> None:
    first = prints_of(tmp_path, CODE)
    note_inputs(tmp_path / "study", first)
    note_inputs(tmp_path / "study", {"gold": "other"})
    check_inputs(tmp_path / "study", first)


def test_where_prompts_come_from_is_noted_and_decides_nothing(tmp_path: Path) -> None:
    first = prints_of(tmp_path, CODE)
    task = find_inputs(load_spec(tmp_path / "spec.yaml")).task
    note_inputs(tmp_path / "study", first, task)
    kept = read_json(tmp_path / "study" / "inputs.json")
    check_inputs(tmp_path / "study", first)
    facts = kept["prompts"]
    assert facts["source"] == "prompts.txt"
    assert facts["columns"] == []
    assert facts["splits"]["train"] == {"prompts": 6, "sha256": task.digests["train"]}


def test_a_study_without_the_file_passes(tmp_path: Path) -> None:
    check_inputs(tmp_path, {"gold": "x"})


def test_another_further_gold_is_refused_by_its_name(tmp_path: Path) -> None:
    def prints(code: str) -> dict[str, str]:
        spec = own_task(tmp_path)
        spec["task"]["golds"] = {"tone": "tone.py:tone"}
        (tmp_path / "rewards.py").write_text(
            CODE + "def gold(completions): return [1.0 for c in completions]\n", encoding="utf-8"
        )
        (tmp_path / "tone.py").write_text(code, encoding="utf-8")
        text = "".join(f"question {i}\n" for i in range(12))
        (tmp_path / "prompts.txt").write_text(text, encoding="utf-8")
        inputs = find_inputs(load_spec(write(tmp_path, spec)))
        return fingerprints(inputs.task, inputs.source)

    tone = "def tone(completions): return [c.count('!') for c in completions]\n"
    study = tmp_path / "study"
    note_inputs(study, prints(tone))
    check_inputs(study, prints(tone))
    with pytest.raises(StudyError, match="gold tone changed"):
        check_inputs(study, prints(tone.replace("'!'", "'?'")))


def test_another_weight_or_another_file_of_recorded_scores_is_refused(tmp_path: Path) -> None:
    def prints(weight: float, score: int) -> dict[str, str]:
        spec = own_task(tmp_path)
        part = {"function": "rewards.py:proxy", "weight": weight}
        spec["task"] |= {
            "proxy": {"weighted": [part]},
            "golds": {"people": {"recorded": "s.jsonl"}},
        }
        (tmp_path / "rewards.py").write_text(
            CODE + "def gold(completions): return [1.0 for c in completions]\n", encoding="utf-8"
        )
        (tmp_path / "s.jsonl").write_text(f"{score}", encoding="utf-8")
        text = "".join(f"question {i}\n" for i in range(12))
        (tmp_path / "prompts.txt").write_text(text, encoding="utf-8")
        inputs = find_inputs(load_spec(write(tmp_path, spec)))
        return fingerprints(inputs.task, inputs.source)

    study = tmp_path / "study"
    note_inputs(study, prints(1.0, 1))
    check_inputs(study, prints(1.0, 1))
    with pytest.raises(StudyError, match=r"study: gold people, proxy changed"):
        check_inputs(study, prints(2.0, 2))


def test_another_start_adapter_is_refused_by_name(tmp_path: Path) -> None:
    spec = own_task(tmp_path)
    model = dict(spec["model"])  # pyright: ignore[reportArgumentType]
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "adapter_config.json").write_text("{}", encoding="utf-8")
    weights = tmp_path / "sft" / "adapter_model.safetensors"
    prints_of(tmp_path, CODE)

    def prints(content: bytes) -> dict[str, str]:
        weights.write_bytes(content)
        given = write(tmp_path, {**spec, "model": {**model, "adapter": "sft"}})
        inputs = find_inputs(load_spec(given))
        return fingerprints(inputs.task, inputs.source)

    note_inputs(tmp_path / "study", prints(b"one"))
    check_inputs(tmp_path / "study", prints(b"one"))
    with pytest.raises(StudyError, match="start adapter changed"):
        check_inputs(tmp_path / "study", prints(b"two"))

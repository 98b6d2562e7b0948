from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fake_study import trial, typical_trials, write_study
from validate_case import comparison, confirmation

from kltune.confirm.result import Against
from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.validate import ValidateRequest, run_validate
from kltune.metrics.jsonl import write_json
from kltune.report.rows import StudyRows
from kltune.tasks.protocol import Prompt, Sample, Scorer


@dataclass
class FakeGold:
    """Says what is on record for a completion, plus ``off`` times the number of the reading."""

    recorded: Mapping[str, float]
    off: float = 0.0
    name: str = "fake gold"
    readings: list[int] = field(default_factory=list[int])

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        self.readings.append(len(samples))
        return [
            self.recorded[f"{s.prompt.id}{s.text}"] + self.off * len(self.readings) * (i % 2)
            for i, s in enumerate(samples)
        ]


@dataclass
class Asking(FakeGold):
    """Keeps what it was told, as a judge does."""

    def keep_in(self, folder: Path) -> None:
        raise AssertionError(f"nothing is kept in {folder} by a command that only looks")


def _rows(study_path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(study_path.glob("trials/*/samples.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def gold_of(off: float = 0.0, seen: list[FakeGold] | None = None):
    def load(study: StudyRows) -> tuple[Scorer, Mapping[str, Any]]:
        rows = [
            json.loads(line)
            for path in sorted(study.path.glob("trials/*/samples.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        recorded = {f"{r['prompt_id']}{r['completion']}": r["gold"] for r in rows}
        gold = FakeGold(recorded, off)
        if seen is not None:
            seen.append(gold)
        return gold, {r["prompt_id"]: Prompt(r["prompt_id"], r["prompt"]) for r in rows}

    return load


def lines_of(folder: Path) -> dict[str, dict[str, Any]]:
    text = (folder / "validate.json").read_text(encoding="utf-8")
    facts = json.loads(text, parse_constant=pytest.fail)
    return {line["name"]: line for line in facts["lines"]}


def test_three_files_are_written_and_the_table_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_study(tmp_path / "study", typical_trials())
    seen: list[FakeGold] = []
    run_validate(ValidateRequest(folder), gold_of(seen=seen))
    shown = capfd.readouterr()
    assert "Winner confirmed" in shown.out
    assert "validate.html" in shown.err
    assert (folder / "validate.md").read_text(encoding="utf-8").startswith("# kltune validate")
    assert "<h1>kltune validate" in (folder / "validate.html").read_text(encoding="utf-8")
    assert len(seen[0].readings) == 2
    assert max(seen[0].readings) <= 64
    assert not (folder / "looks.jsonl").exists(), "no test prompt is looked at"


def test_json_is_alone_on_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_study(tmp_path / "study", typical_trials())
    run_validate(ValidateRequest(folder, is_gold_read=False, as_json=True))
    facts = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert facts["schema"] == 1
    assert facts == json.loads((folder / "validate.json").read_text(encoding="utf-8"))


def test_a_fail_is_exit_4_and_the_page_is_written_all_the_same(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [trial(0.001, learning_rate=0.02)])
    assert run_validate(ValidateRequest(folder)) is ExitCode.GATE_FAILED
    assert lines_of(folder)["enough_trials"]["grade"] == "fail"


def test_warnings_alone_are_exit_0(tmp_path: Path) -> None:
    up = (0.2, 0.5, 0.8, 1.0, 1.1, 1.0, 0.9, 0.6, 0.3)
    folder = write_study(tmp_path / "study", [trial(0.1, gold=up)])
    assert run_validate(ValidateRequest(folder, is_gold_read=False)) is ExitCode.DONE
    assert lines_of(folder)["gold_repeats"]["grade"] == "warn"


def test_noise_of_gold_is_measured_by_reading_twice(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [trial(0.1)])
    run_validate(ValidateRequest(folder), gold_of(off=0.05))
    line = lines_of(folder)["gold_repeats"]
    assert line["grade"] == "warn"
    assert line["number"] > 0


def test_a_gold_that_can_not_be_loaded_here_is_a_warning_with_the_reason(tmp_path: Path) -> None:
    def gone(study: StudyRows) -> tuple[Scorer, Mapping[str, Any]]:
        raise SpecError("rewards.py: no such file")

    folder = write_study(tmp_path / "study", [trial(0.1)])
    run_validate(ValidateRequest(folder), gone)
    line = lines_of(folder)["gold_repeats"]
    assert line["grade"] == "warn"
    assert "rewards.py: no such file" in line["meaning"]


def test_confirmation_and_comparison_are_read_where_they_lie(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "studies" / "kitchen", [trial(0.1)])
    write_json(folder / "confirm" / "confirm.json", confirmation(0).as_json())
    for name, result in (("ours", comparison()), ("others", comparison(study="elsewhere"))):
        write_json(tmp_path / "studies" / "transfer" / name / "transfer.json", result.as_json())
    run_validate(ValidateRequest(folder, is_gold_read=False))
    found = lines_of(folder)
    assert found["confirmed"]["grade"] == "pass"
    assert found["transfer"]["grade"] == "pass"


def test_a_comparison_of_other_studies_is_none_of_this_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_study(tmp_path / "studies" / "kitchen", [trial(0.1)])
    other = tmp_path / "studies" / "transfer"
    write_json(other / "a" / "transfer.json", comparison(study="elsewhere").as_json())
    write_json(other / "b" / "transfer.json", {"something": "else"})
    run_validate(ValidateRequest(folder, is_gold_read=False))
    assert lines_of(folder)["transfer"]["shown"] == "not checked"
    assert "is left out" in capfd.readouterr().err


def test_a_broken_confirmation_is_named(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [trial(0.1)])
    write_json(folder / "confirm" / "confirm.json", {"seeds": [1]})
    with pytest.raises(
        StudyError, match=r"confirm\.json.*has no 'study'.*delete it, or run kltune"
    ):
        run_validate(ValidateRequest(folder, is_gold_read=False))
    (folder / "confirm" / "confirm.json").write_text("{", encoding="utf-8")
    with pytest.raises(StudyError, match=r"confirm\.json.*not readable.*delete it"):
        run_validate(ValidateRequest(folder, is_gold_read=False))


def test_a_folder_that_can_not_take_the_results_is_refused_before_gold_runs(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [trial(0.1)])
    (folder / "validate.html").mkdir()
    seen: list[FakeGold] = []
    with pytest.raises(StudyError, match=r"validate\.html: is a folder"):
        run_validate(ValidateRequest(folder), gold_of(seen=seen))
    assert not seen


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_study_is_refused_before_gold_runs(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [trial(0.1)])
    seen: list[FakeGold] = []
    folder.chmod(0o555)
    try:
        with pytest.raises(StudyError, match="can't be written to"):
            run_validate(ValidateRequest(folder), gold_of(seen=seen))
    finally:
        folder.chmod(0o755)
    assert not seen


def test_the_page_names_the_study_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_study(tmp_path / "my runs" / "kitchen", [trial(0.1)])
    (tmp_path / "here").mkdir()
    for here, given, shown in (
        (tmp_path, folder, "'my runs/kitchen'"),
        (tmp_path / "here", Path("../my runs/kitchen"), "'../my runs/kitchen'"),
    ):
        monkeypatch.chdir(here)
        run_validate(ValidateRequest(given, is_gold_read=False))
        text = (folder / "validate.md").read_text(encoding="utf-8")
        assert f"Repeat: kltune validate {shown}\n" in text


def test_gold_above_the_start_is_that_of_the_confirmation_only_of_the_same_setting(
    tmp_path: Path,
) -> None:
    folder = write_study(tmp_path / "study", [trial(0.1)])
    for number, where in ((0, "test prompts"), (5, "select prompts")):
        found = confirmation(number)
        start = Against(1, "start", 0.5, 0.2, 0.8, 0.01, True, False, 3)
        main = replace(found.main, against=(*found.main.against, start))
        facts = replace(found, judgements=(main,)).as_json()
        write_json(folder / "confirm" / "confirm.json", facts)
        run_validate(ValidateRequest(folder, is_gold_read=False))
        assert where in lines_of(folder)["gold_gain"]["shown"]


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a study folder"):
        run_validate(ValidateRequest(tmp_path))


def test_rewards_that_are_no_functions_are_made_ready(tmp_path: Path) -> None:
    names = [
        *(("train", i) for i in range(9, 12)),
        *(("select", i) for i in range(4)),
        ("test", 5),
        ("test", 6),
    ]
    asked = "how long do I cook food {} ?"
    prompts = [{"id": f"food-{i}", "prompt": asked.format(i), "split": s} for s, i in names]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    task = {
        "prompts": str(tmp_path / "p.jsonl"),
        "proxy": {"learned": {}},
        "gold": {"recorded": str(tmp_path / "scores.jsonl")},
    }
    folder = write_study(tmp_path / "study", [trial(0.1)], task=task)
    (path,) = folder.glob("trials/*/samples.jsonl")
    rows = [{**json.loads(line), "gold": 1.0} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{k: row[k] for k in ("prompt", "completion")} | {"score": 1.0} for row in rows]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    run_validate(ValidateRequest(folder))
    line = lines_of(folder)["gold_repeats"]
    assert "same as on record" in line["meaning"], line


def test_a_judge_is_asked_twice_not_its_memory(tmp_path: Path) -> None:
    made: list[Asking] = []

    def load(study: StudyRows) -> tuple[Scorer, Mapping[str, Any]]:
        _, prompts = gold_of()(study)
        rows = {f"{r['prompt_id']}{r['completion']}": r["gold"] for r in _rows(study.path)}
        made.append(Asking(rows))
        return made[-1], prompts

    folder = write_study(tmp_path / "study", [trial(0.1)])
    run_validate(ValidateRequest(folder), load)
    assert [len(gold.readings) for gold in made] == [1, 1]

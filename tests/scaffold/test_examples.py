from __future__ import annotations

from pathlib import Path

import pytest

from kltune.scaffold.examples import grounded, locate, missing_files
from kltune.scaffold.start import LEARNED, Answers
from kltune.spec.task import SplitsSpec
from kltune.tasks.prompts import load_prompts

OWN = Answers("mine", task=None, model="m")


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_examples_work_as_kltune_uses_them(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    files = missing_files(OWN, spec)
    assert sorted(path.name for path in files) == ["prompts.jsonl", "rewards.py"]
    write(files)
    splits = load_prompts(tmp_path / "prompts.jsonl", SplitsSpec())
    assert (len(splits.train), len(splits.select), len(splits.test)) == (2, 2, 2)
    functions: dict[str, object] = {}
    exec((tmp_path / "rewards.py").read_text(encoding="utf-8"), functions)
    gold, proxy = functions["gold"], functions["proxy"]
    assert callable(gold)
    assert callable(proxy)
    columns = {"prompts": ["", ""], "minutes": [8, 8]}
    assert gold(completions=["8 minutes", "nine"], **columns) == [1.0, 0.0]
    assert proxy(completions=["8 minutes", "nine"], **columns) == [0.1, 0.05]


def test_nothing_that_is_there_is_missing(tmp_path: Path) -> None:
    write({tmp_path / "prompts.jsonl": '{"prompt": "a"}\n'})
    files = missing_files(OWN, tmp_path / "spec.yaml")
    assert [path.name for path in files] == ["rewards.py"]
    # Prompts of the user's have no column `minutes`: the example must not ask for it.
    assert "minutes" not in next(iter(files.values()))
    write(files)
    assert missing_files(OWN, tmp_path / "spec.yaml") == {}


def test_what_can_not_be_made_up_is_left_to_the_check(tmp_path: Path) -> None:
    answers = Answers("a", None, "p.txt", "pkg.mod:gold", "deep/r.py:f", "m")
    assert [str(path) for path in missing_files(answers, tmp_path / "s.yaml")] == ["deep/r.py"]
    assert missing_files(Answers("a"), tmp_path / "s.yaml") == {}


def test_each_scorer_is_written_into_the_file_that_is_named_for_it(tmp_path: Path) -> None:
    answers = Answers("a", None, "p.txt", "judge.py:right", "reward.py:score", "m")
    files = {path.name: text for path, text in missing_files(answers, tmp_path / "s.yaml").items()}
    assert "def right(" in files["judge.py"]
    assert "def score(" in files["reward.py"]
    assert "def score(" not in files["judge.py"]


def test_a_bare_name_is_made_beside_the_spec_and_one_with_a_folder_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = Path("mine/spec.yaml")
    assert locate("r.py", spec) == Path("mine/r.py")
    assert locate("mine/r.py", spec) == Path("mine/r.py")
    write({Path("r.py"): "", Path("mine/deep/q.py"): ""})
    assert locate("r.py", spec) == Path("r.py")  # as a spec's paths are looked up: here first
    assert locate("deep/q.py", spec) == Path("mine/deep/q.py")


def test_grounded_answers_name_the_same_files_from_anywhere(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    found = grounded(OWN, {tmp_path / "rewards.py": Path("/scratch/r.py")}, spec)
    assert found.gold == "/scratch/r.py:gold"
    assert found.prompts == str(tmp_path / "prompts.jsonl")
    assert grounded(Answers("a", None, proxy=LEARNED), {}, spec).proxy == LEARNED
    assert grounded(Answers("a"), {}, spec) == Answers("a")

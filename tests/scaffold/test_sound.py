from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.scaffold.draft import render
from kltune.scaffold.sound import check_answers, checked
from kltune.scaffold.start import LEARNED, Answers, start_draft

OWN = Answers("mine", task=None, model="builtin:kitchen")


def test_a_checked_draft_is_what_loading_its_text_gives(tmp_path: Path) -> None:
    from kltune.spec.load import load_spec

    found = checked(start_draft(OWN), tmp_path / "spec.yaml")
    found.path.write_text(found.text, encoding="utf-8")
    assert load_spec(found.path) == found
    assert found.text == render(start_draft(OWN))


def test_all_that_is_wrong_with_a_draft_is_one_message() -> None:
    draft = start_draft(OWN).put("trainer.steps", 0).put("trainer.nope", 1)
    with pytest.raises(
        SpecError, match=r"(?s)spec\.yaml: 2 problem.*trainer\.steps.*trainer\.nope"
    ):
        checked(draft, Path("spec.yaml"))


def test_answers_whose_files_would_be_made_are_sound_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    check_answers(OWN, tmp_path / "new" / "spec.yaml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (Answers("a", None, model="./nope"), "model.base: no such folder"),
        (Answers("a", None, model="builtin:nope"), "no built-in model 'nope'"),
        (Answers("a", None, "p.doc", model="builtin:kitchen"), "task.prompts: must be "),
        (Answers("a", None, "p.txt", model="builtin:kitchen"), "task.prompts: no such file"),
        (Answers("a", None, gold="gold", model="builtin:kitchen"), "must look like"),
        (Answers("a", None, proxy="rewards.py:gold", model="builtin:kitchen"), "same function"),
        (Answers("a", algorithm="nope"), "trainer.algorithm"),
        (Answers("-a"), "must be a folder name"),
    ],
)
def test_answers_that_make_no_spec_are_refused(tmp_path: Path, answers: Answers, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        check_answers(answers, tmp_path / "spec.yaml")


def test_a_file_beside_the_spec_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("def judge(completions): ...\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"defines no 'gold' \(it defines judge\)"):
        check_answers(OWN, tmp_path / "spec.yaml")
    there = Answers("a", None, gold="rewards.py:judge", proxy=LEARNED, model="builtin:kitchen")
    check_answers(there, tmp_path / "spec.yaml")

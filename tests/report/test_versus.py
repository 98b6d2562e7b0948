"""Only studies whose golds mean the same are compared, and what differs between them is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from versus_case import PRINTS, a_study, sides, two

from kltune.errors import SpecError, StudyError
from kltune.report.versus import is_same_prompts, labels_of, read_sides, spec_rows


def own_task(gold: str) -> dict[str, str]:
    return {"prompts": "p.jsonl", "proxy": "r.py:proxy", "gold": gold}


def test_a_side_is_a_study_with_its_answer(tmp_path: Path) -> None:
    low, high = sides(*two(tmp_path))
    assert (low.label, high.label) == ("low", "high")
    assert low.best is not None
    assert low.best.number == 0
    assert low.confirmed is None
    assert low.seed_noise is None
    assert high.scores(high.best) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"task": own_task("g.py:judge")},
            "task: built-in kitchen in low, gold g.py:judge in other",
        ),
        (
            {"objective": {"metric": "gold_final", "kl_limit": 0.5}},
            "objective.metric: gold_peak in",
        ),
    ],
)
def test_another_gold_is_refused_with_both_values(
    spec: dict[str, object], told: str, tmp_path: Path
) -> None:
    low, _ = two(tmp_path)
    other = a_study(tmp_path / "other", **spec)
    with pytest.raises(SpecError, match="can't be compared") as caught:
        read_sides([low, other])
    assert told in str(caught.value)


def test_the_same_name_with_other_code_is_refused(tmp_path: Path) -> None:
    task = own_task("g.py:judge")
    one = a_study(tmp_path / "one", task=task)
    other = a_study(tmp_path / "other", prints={**PRINTS, "gold": "e" * 64}, task=task)
    with pytest.raises(SpecError, match="the code of the judgement differs between one and other"):
        read_sides([one, other])
    unknown = a_study(tmp_path / "unknown", prints={}, task=task)
    assert len(read_sides([one, unknown])) == 2


def test_one_study_a_study_twice_or_none_is_refused(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    with pytest.raises(SpecError, match="two studies or more"):
        read_sides([low])
    with pytest.raises(SpecError, match="given more than once"):
        read_sides([low, high, tmp_path / "." / "low"])
    with pytest.raises(StudyError, match="not a study folder"):
        read_sides([low, tmp_path])


def test_folders_of_one_name_are_told_apart_by_those_above(tmp_path: Path) -> None:
    assert labels_of([tmp_path / "a" / "s", tmp_path / "b" / "s"]) == ["a/s", "b/s"]
    assert labels_of([tmp_path / "x" / "s", tmp_path / "x" / "t"]) == ["s", "t"]


def test_the_same_prompts_are_known_by_their_fingerprint_and_number(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    assert is_same_prompts(*sides(low, high)) is True
    fewer = a_study(tmp_path / "fewer", evaluate={"prompts": 32})
    assert is_same_prompts(*sides(low, fewer)) is False
    others = a_study(tmp_path / "others", prints={**PRINTS, "prompts (select)": "d" * 64})
    assert is_same_prompts(*sides(low, others)) is False
    unknown = a_study(tmp_path / "unknown", prints={})
    assert is_same_prompts(*sides(low, unknown)) is None


def test_what_differs_is_listed_and_what_does_not_is_not(tmp_path: Path) -> None:
    low = a_study(tmp_path / "low")
    trainer = {"steps": 80, "prompts": 8, "group_size": 8, "max_new_tokens": 32}
    high = a_study(
        tmp_path / "high",
        prints={**PRINTS, "model": "f" * 64},
        name="another",
        trainer={**trainer, "learning_rate": 2e-3},
        baselines=[],
    )
    rows = {row[0]: row[1:] for row in spec_rows(sides(low, high))}
    assert rows["trainer.learning_rate"] == ("0.001", "0.002")
    assert rows["baselines"] == ("trl-grpo-0.18, deepseekmath, verl-ppo", "–")
    assert rows["input: model"] == ("c" * 12, "f" * 12)
    assert "name" not in rows
    assert "trainer.steps" not in rows
    assert spec_rows(sides(*two(tmp_path / "same"))) == []

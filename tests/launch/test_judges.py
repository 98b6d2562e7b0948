"""A study's judges: counted before, kept within, and not asked where only time is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_bank import small_spec

from kltune.launch.judges import (
    folder_of,
    judge_notes,
    keep_judges,
    most_calls,
    without_asking,
)
from kltune.rewards.context import RewardContext
from kltune.rewards.make import make_scorer
from kltune.rewards.unasked import Unasked
from kltune.spec.judge import UnaskedJudge
from kltune.spec.load import LoadedSpec
from kltune.spec.scorers import WeightedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_weighted import Part, WeightedScorer

JUDGE: dict[str, Any] = {"judge": "m", "url": "http://h/v1"}
WEIGHTED = {"weighted": [{"function": "r.py:f", "weight": 1.0}, {**JUDGE, "weight": 2.0}]}


def spec(**task: Any) -> StudySpec:
    fields = {"prompts": "p.jsonl", "proxy": "r.py:f", "gold": JUDGE, **task}
    whole = small_spec().model_dump(mode="json")
    return StudySpec.model_validate({**whole, "task": fields})


def test_requests_are_counted_by_field() -> None:
    duel = {"win_rate": {"reference": "r.csv", "by": JUDGE}}
    asked = spec(proxy=WEIGHTED, golds={"duel": duel, "free": {"verifier": "json"}})
    assert most_calls(asked, 100, 10) == {
        "task.proxy.weighted.1": 100,
        "task.gold": 10,
        "task.golds.duel": 20,
    }
    assert most_calls(small_spec(), 100, 10) == {}


def test_a_person_reads_who_is_asked_how_often_and_within_which_budget() -> None:
    limited = spec(gold={**JUDGE, "budget": {"calls": 5000}})
    (note,) = judge_notes(limited, {"task.gold": 1234})
    assert note.startswith("task.gold asks m at http://h/v1 at most 1,234 times")
    assert note.endswith("(budget: 5,000 calls)")
    assert judge_notes(spec(), {"task.gold": 1})[0].endswith("(no budget is set)")


def test_a_spec_that_asks_nobody_differs_in_its_judges_alone() -> None:
    asked = spec(proxy=WEIGHTED, golds={"free": {"verifier": "json"}})
    quiet = without_asking(LoadedSpec(asked, "", Path("s.yaml"))).spec
    assert isinstance(quiet.task, TaskSpec)
    assert isinstance(quiet.task.gold, UnaskedJudge)
    assert isinstance(quiet.task.proxy, WeightedSpec)
    assert isinstance(quiet.task.proxy.weighted[1].reward, UnaskedJudge)
    assert quiet.task.proxy.weighted[0] == asked.task.proxy.weighted[0]
    assert quiet.task.golds == asked.task.golds
    assert quiet.trainer == asked.trainer
    made = make_scorer(quiet.task.gold, RewardContext("task.gold", Path))
    assert isinstance(made, Unasked)


def test_a_task_without_a_judge_stays_as_it_is() -> None:
    loaded = LoadedSpec(small_spec(), "", Path("s.yaml"))
    assert without_asking(loaded).spec == loaded.spec


@dataclass
class Kept:
    name: str = "kept"
    folders: list[Path] = field(default_factory=list)

    def keep_in(self, folder: Path) -> None:
        self.folders.append(folder)

    def __call__(self, samples: object) -> list[float]:
        return []


@dataclass(frozen=True)
class Data:
    proxy: Any
    gold: Any
    golds: dict[str, Any]


def test_every_judge_is_told_where_its_study_is_parts_of_a_sum_too(tmp_path: Path) -> None:
    part, gold, other = Kept(), Kept(), Kept()
    proxy = WeightedScorer((Part("a", 1.0, part),))
    keep_judges(Data(proxy, gold, {"x": other, "f": Unasked("f")}), tmp_path)
    assert [k.folders for k in (part, gold, other)] == [[folder_of(tmp_path)]] * 3

"""What may change within a study, and what a study of an older version is told."""

from __future__ import annotations

from typing import Any

from fake_bank import small_spec

from kltune.spec.study import StudySpec
from kltune.study.same_spec import differences, kept


def spec(**guards: object) -> StudySpec:
    whole = small_spec().model_dump(mode="json")
    return StudySpec.model_validate({**whole, "guards": guards})


def older(begun: StudySpec) -> dict[str, Any]:
    """As a version without these guards kept it."""
    whole = kept(begun)
    kl = whole["guards"]["kl"]
    whole["guards"] = {"kl": {k: kl[k] for k in ("limit", "patience")} if kl else None}
    return whole


def test_a_guard_that_only_warns_may_come_go_and_change() -> None:
    quiet = {"jump": "off", "entropy": "off"}
    loud = {"jump": {"action": "warn", "factor": 9}, "entropy": {"action": "warn", "share": 0.4}}
    assert differences(kept(spec(**quiet)), kept(spec(**loud))) == []


def test_a_guard_that_stops_is_part_of_every_trial() -> None:
    warned, stopped = ({"action": act, "factor": 7.0} for act in ("warn", "stop"))
    found = differences(kept(spec(jump=warned)), kept(spec(jump=stopped)))
    assert found == ['guards.jump.action: "warn" in the study, "stop" now']
    (line,) = differences(kept(spec(jump={"factor": 4.0})), kept(spec(jump={"factor": 5.0})))
    assert line == "guards.jump.factor: 4.0 in the study, 5.0 now"


def test_an_older_study_is_told_once_for_each_guard_that_would_end_trials_now() -> None:
    kl = {"limit": 0.5}
    found = differences(older(spec(kl=kl)), kept(spec(kl=kl)))
    assert [line.partition(":")[0] for line in found] == [
        "guards.gold_drop",
        "guards.jump",
        "guards.negative_kl",
        "guards.stalled",
    ]
    assert all("--set guards." in line and "=warn" in line for line in found)


def test_an_older_study_goes_on_without_them() -> None:
    kl = {"limit": 0.5}
    mute = dict.fromkeys(("gold_drop", "jump", "negative_kl", "stalled"), "warn")
    assert differences(older(spec(kl=kl)), kept(spec(kl=kl, **mute))) == []


def test_gold_drop_counts_as_what_it_does_under_the_objective() -> None:
    assert kept(spec())["guards"]["gold_drop"]["action"] == "stop"
    assert differences(kept(spec()), kept(spec(gold_drop="stop"))) == []


def judged(**fields: object) -> dict[str, Any]:
    judge = {"judge": "m", "url": "http://here/v1", **fields}
    task = {"prompts": "p.jsonl", "proxy": "r.py:f", "gold": judge}
    whole = small_spec().model_dump(mode="json")
    return kept(StudySpec.model_validate({**whole, "task": task}))


def test_a_judge_may_move_and_its_budget_be_raised_but_not_what_it_is_asked() -> None:
    now = judged(url="http://there/v1", budget={"calls": 9}, retries=1, key_env="KEY")
    assert differences(judged(), now) == []
    found = differences(judged(), judged(scale=[0, 1]))
    assert [line.partition(":")[0] for line in found] == ["task.gold.scale"]


def test_a_study_of_before_scorers_had_limits_goes_on_and_those_may_change() -> None:
    task = {"prompts": "p.jsonl", "proxy": "r.py:f", "gold": "r.py:g"}
    whole = small_spec().model_dump(mode="json")

    def own(**fields: object) -> StudySpec:
        return StudySpec.model_validate({**whole, "task": {**task, **fields}})

    before = kept(own())
    for name in ("errors", "timeout", "isolate"):
        before["task"].pop(name, None)
    assert differences(before, kept(own(timeout="5s", isolate=True))) == []
    found = differences(before, kept(own(errors={"action": "skip"})))
    assert [line.partition(":")[0] for line in found] == ["task.errors.action"]

from __future__ import annotations

from kltune.diagnose.left_out import left_out


def test_names_of_one_reason_are_one_note() -> None:
    notes = left_out({"kl2": ["kl0", "kl1"]}, {"no gold": ["eval_reward"]}, ())
    assert notes == [
        "kl0, kl1 were left out: kl2 is the better source",
        "eval_reward was left out: no gold",
    ]


def test_of_many_names_some_are_shown() -> None:
    (note,) = left_out({}, {"why": [f"n{i}" for i in range(20)]}, ())
    assert note == "n0, n1, n2, n3, n4, n5, n6, n7 and 12 more were left out: why"


def test_of_unknown_names_only_those_that_may_judge_are_asked_about() -> None:
    (note,) = left_out({}, {}, ["host", "time/step", "my_REWARD"])
    assert note == "my_REWARD was left out: not a name that kltune knows"

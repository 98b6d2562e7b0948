from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from kltune.scaffold.draft import WIDTH, DraftLine, Plain, SpecDraft, render


def read(text: str) -> object:
    return YAML(typ="safe", pure=True).load(text)


ODD: list[Plain] = [
    "plain",
    "a: b",
    "null",
    "Yes",
    "e5",
    "infinity",
    "_",
    "true",
    "1e-4",
    "0x10",
    "~",
    "",
    " space ",
    "- dash",
    "-",
    "---",
    "#x",
    "it's",
    'a "quote" \\ and more',
    "line\nbreak\ttab\x00\x07\x7f\u2028",
    "emoji 🍳, right to left \u202e",
    "rewards.py:gold",
    "{a: b}",
    "[1]",
    "2026-01-01",
    "1:30",
    "12:30:45",
    "a:",
    ":a",
    "a:b",
    "c:/x",
    "=",
    "<<",
    1e-4,
    1e-05,
    0.1 + 0.2,
    1e16,
    -2.5e-07,
    123456789.0,
    1e300,
    5e-324,
    10.0,
    -3,
    True,
    None,
    [1, 2.5, "x,y"],
    {"log": [1e-3, 1.0], "zero": True},
    {"choice": ["k1-reward", "no", "y"]},
    [{"name": "mine", "beta": 0.001}, "trl-grpo-0.18"],
]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_value_reads_back_as_itself_at_any_depth(value: Plain) -> None:
    draft = (
        SpecDraft().put("name", value).put("trainer.kl.credit", value, "why").put("x.y", [value])
    )
    assert read(render(draft)) == draft.data()


def test_sections_stand_in_the_order_of_thought_whatever_the_order_of_put() -> None:
    draft = SpecDraft().put("budget.trials", 4).put("trainer.steps", 8).put("name", "n")
    draft = draft.put("trainer.kl.clip", 2).put("trainer.prompts", 1).put("trainer.kl.top_k", 3)
    assert render(draft).splitlines() == [
        "name: n",
        "trainer:",
        "  steps: 8",
        "  kl:",
        "    clip: 2",
        "    top_k: 3",
        "  prompts: 1",
        "budget:",
        "  trials: 4",
    ]


def test_a_comment_stands_beside_its_line_or_above_it_where_it_is_long() -> None:
    long = "steps of a full trial, " * 10
    text = render(SpecDraft().put("trainer.steps", 8, "short").put("trainer.prompts", 4, long))
    rows = text.splitlines()
    assert rows[1] == f"{'  steps: 8':38} # short"
    assert rows[2].startswith("  # steps of a full trial,")
    assert rows[-1] == "  prompts: 4"
    assert max(map(len, rows)) <= WIDTH


def test_no_comment_title_or_warning_becomes_a_key() -> None:
    hostile = "from x.yaml\nallow_biased: true\r\x85seed: 7\u2028trials: 3"
    draft = SpecDraft((DraftLine("name", "n", hostile),), title=hostile).warn(hostile)
    assert read(render(draft)) == {"name": "n"}


def test_a_later_put_replaces_the_line_in_its_place() -> None:
    draft = (
        SpecDraft().put("trainer.steps", 8).put("trainer.prompts", 4).put("trainer.steps", 9, "c")
    )
    assert [(line.key, line.value) for line in draft.lines] == [
        ("trainer.steps", 9),
        ("trainer.prompts", 4),
    ]


def test_a_key_can_not_be_a_value_and_a_section() -> None:
    with pytest.raises(ValueError, match="can't both be lines"):
        SpecDraft().put("task", "kitchen").put("task.prompts", "p.jsonl")
    with pytest.raises(ValueError, match="can't both be lines"):
        SpecDraft().put("task.prompts", "p.jsonl").put("task", "kitchen")


def test_drop_takes_a_section_with_all_that_is_below_it() -> None:
    draft = SpecDraft().put("task.prompts", "p").put("task.gold", "g").put("tasks", 1)
    assert draft.drop("task").data() == {"tasks": 1}
    assert draft.drop("absent") == draft


def test_lines_on_top_replace_whatever_is_in_their_place_but_what_is_kept() -> None:
    base = SpecDraft(title="t").put("name", "n").put("task", "kitchen").put("trainer.steps", 8)
    base = base.put("search.beta.log", [1, 2]).warn("first")
    top = SpecDraft().put("name", "other").put("task.prompts", "p").put("trainer.steps", 9)
    top = top.put("search.beta", 0.1).put("model.base", "m").warn("second")
    found = base.under(top, keep=("name",))
    assert found.data() == {
        "name": "n",
        "task": {"prompts": "p"},
        "trainer": {"steps": 9},
        "search": {"beta": 0.1},
        "model": {"base": "m"},
    }
    assert (found.title, found.warnings) == ("t", ("first", "second"))
    assert base.under(top, keep=("task",)).data()["task"] == "kitchen"

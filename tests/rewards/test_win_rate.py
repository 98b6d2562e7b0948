"""Wins against the reference's recorded answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from chat_fake import chat_server

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.win_rate import Duel, JudgeDuel, ModelDuel, WinRateScorer
from kltune.spec.judge import JudgeSpec
from kltune.spec.rewards import WinRateSpec
from kltune.tasks.protocol import Prompt, Sample

PROMPT = Prompt("p1", "say x")


class Longer:
    """A reward model that likes long answers."""

    name = "longer"

    def __init__(self) -> None:
        self.scored = 0

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        self.scored += len(samples)
        return [float(len(sample.text)) for sample in samples]


def scorer(tmp_path: Path, duel: Duel, prompts: Sequence[Prompt] = (PROMPT,)) -> WinRateScorer:
    (tmp_path / "r.jsonl").write_text(json.dumps({"prompt": "say x", "completion": "xx"}) + "\n")
    by = {"judge": "m", "url": "http://localhost/v1"}
    spec = WinRateSpec.model_validate({"win_rate": {"reference": "r.jsonl", "by": by}})
    return WinRateScorer(spec, RewardContext("task.gold", tmp_path.joinpath, prompts), duel)


def judged(url: str, field: str = "task.gold") -> JudgeDuel:
    spec = JudgeSpec(judge="m", url=url, retries=0, timeout=5)
    return JudgeDuel(spec, RewardContext(field, Path), lambda _: None)


def samples(*texts: str) -> list[Sample]:
    return [Sample(PROMPT, text, (), True) for text in texts]


def answers(text: str) -> tuple[str, str]:
    parts = text.split("-----")
    return parts[3].strip(), parts[5].strip()


def by_length(text: str) -> str:
    a, b = map(len, answers(text))
    return "Verdict: " + ("tie" if a == b else "A" if a > b else "B")


def test_the_higher_score_wins_and_equal_ones_tie(tmp_path: Path) -> None:
    model = Longer()
    made = scorer(tmp_path, ModelDuel(model))
    assert made(samples("xxx", "x", "yy", "xx")) == [1, 0, 0.5, 0.5]
    assert (
        model.scored == 4
    )  # three that differ and the reference's answer; the same text is a tie as it is
    made(samples("y"))
    assert model.scored == 5  # the reference's answer is scored once


def test_a_judge_is_asked_in_both_orders(tmp_path: Path) -> None:
    with chat_server(by_length) as chat:
        made = scorer(tmp_path, judged(chat.url))
        assert made(samples("xxx", "x", "yy")) == [1, 0, 0.5]
    assert len(chat.asked) == 6
    shown = {answers(body["messages"][0]["content"]) for body in chat.asked}
    assert ("xxx", "xx") in shown
    assert ("xx", "xxx") in shown


@pytest.mark.parametrize("always", ["A", "B"])
def test_a_judge_that_goes_by_place_alone_calls_everything_a_tie(
    tmp_path: Path, always: str
) -> None:
    with chat_server(lambda _: f"Verdict: {always}") as chat:
        assert scorer(tmp_path, judged(chat.url))(samples("xxx", "x")) == [0.5, 0.5]


def test_an_unreadable_verdict_leaves_the_other_and_two_of_them_a_tie(tmp_path: Path) -> None:
    def says(text: str) -> str:
        if text.startswith("Reply again"):
            return "can't"
        a, _ = answers(text)
        return "Verdict: A" if a == "win" else "can't"

    with chat_server(says) as chat:
        assert scorer(tmp_path, judged(chat.url))(samples("win", "x")) == [1, 0.5]


def test_a_prompt_without_an_answer_is_named_before_anything_is_scored(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no answer to 1 of 2 prompts, as to 'p2'"):
        scorer(tmp_path, ModelDuel(Longer()), (PROMPT, Prompt("p2", "say y")))


def test_a_judges_verdicts_are_kept_in_the_study(tmp_path: Path) -> None:
    with chat_server(by_length) as chat:
        made = scorer(tmp_path, judged(chat.url))
        made(samples("xxx"))
        made.keep_in(tmp_path / "judge")
    assert len((tmp_path / "judge" / "judge-gold.jsonl").read_text().splitlines()) == 2
    scorer(tmp_path, ModelDuel(Longer())).keep_in(tmp_path / "none")
    assert not (tmp_path / "none").exists()

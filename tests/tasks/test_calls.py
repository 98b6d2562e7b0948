from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.tasks.calls import AT_ONCE, call, calling_of, lacking_words
from kltune.tasks.calls_limits import OverTimeError
from kltune.tasks.protocol import Prompt, Sample


def sample(text: str, messages: tuple[dict[str, Any], ...] = (), **columns: Any) -> Sample:
    return Sample(Prompt("1", "say it", columns, messages), text, (5, 2), True)


def called(function: Any, samples: list[Sample], limit_s: float = 5.0) -> Any:
    return call(function, calling_of("f", function), samples, limit_s)


def test_a_trl_example_reward_runs_unchanged() -> None:
    def reward_func(completions: Any, ground_truth: Any, **kwargs: Any) -> list[float]:
        # TRL's documentation, "Example 4: Reward function with ground truth"
        import re

        matches = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
        contents = [match.group(1) if match else "" for match in matches]
        return [1.0 if c == gt else 0.0 for c, gt in zip(contents, ground_truth, strict=True)]

    samples = [
        sample(r" It is \boxed{3}.", ground_truth="3"),
        sample("four", ground_truth="4"),
    ]
    assert called(reward_func, samples) == [1.0, 0.0]


def test_prompts_that_are_messages_give_completions_that_are_messages_as_in_trl() -> None:
    seen: dict[str, Any] = {}

    def conversational(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
        seen.update(prompts=prompts, completions=completions)
        return [float(len(completion[0]["content"])) for completion in completions]

    turns = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert called(conversational, [sample("abc", turns)]) == [3.0]
    assert seen["prompts"] == [[dict(turn) for turn in turns]]
    assert seen["completions"] == [[{"role": "assistant", "content": "abc"}]]


def test_token_ids_and_trainer_state_reach_only_a_function_that_names_them() -> None:
    seen: dict[str, Any] = {}

    def names(completions: Any, completion_ids: Any, trainer_state: Any) -> list[float]:
        seen.update(ids=completion_ids, step=trainer_state.global_step)
        return [0.0]

    called(names, [sample("a")])
    assert seen == {"ids": [[5, 2]], "step": 0}

    def takes_any(completions: Any, **columns: Any) -> list[float]:
        seen.clear()
        seen.update(columns)
        return [0.0]

    called(takes_any, [sample("a")])
    assert seen == {"prompts": ["say it"]}


def test_a_verl_score_function_runs_unchanged() -> None:
    def compute_score(
        data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None
    ) -> Any:
        assert data_source == "openai/gsm8k"
        return {"score": float(solution_str == ground_truth), "acc": True, "index": extra_info["i"]}

    nested: dict[str, Any] = {
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"i": 1},
    }
    samples = [
        sample("3", data_source="openai/gsm8k", **nested),
        sample("4", data_source="openai/gsm8k", ground_truth="5", extra_info={"i": 2}),
    ]
    assert called(compute_score, samples) == [1.0, 0.0]


def test_verls_batch_function_gets_lists_under_the_plural_names() -> None:
    def compute_score(data_sources: Any, solution_strs: Any, ground_truths: Any) -> Any:
        return [{"score": float(s == t)} for s, t in zip(solution_strs, ground_truths, strict=True)]

    assert called(compute_score, [sample("1", ground_truth="1"), sample("2")]) == [1.0, 0.0]


def test_async_functions_of_both_conventions_are_awaited_and_verls_bounded() -> None:
    async def trl(completions: Any, **columns: Any) -> list[float]:
        await asyncio.sleep(0)
        return [float(len(text)) for text in completions]

    assert called(trl, [sample("ab"), sample("c")]) == [2.0, 1.0]
    running, most = 0, 0

    async def compute_score(solution_str: str, ground_truth: Any = None) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return float(solution_str)

    many = [sample(str(i)) for i in range(3 * AT_ONCE)]
    assert called(compute_score, many) == [float(i) for i in range(3 * AT_ONCE)]
    assert most == AT_ONCE


def test_an_async_function_within_a_running_loop_is_awaited_too() -> None:
    async def trl(completions: Any) -> list[float]:
        return [1.0]

    async def notebook() -> Any:
        return called(trl, [sample("a")])

    assert asyncio.run(notebook()) == [1.0]


def test_an_async_function_that_hangs_is_cancelled() -> None:
    async def hangs(completions: Any) -> list[float]:
        await asyncio.sleep(60)
        return [1.0]

    with pytest.raises(OverTimeError):
        called(hangs, [sample("a")], limit_s=0.05)


def test_a_timeout_of_the_functions_own_stays_its_own() -> None:
    async def gives_up(completions: Any) -> list[float]:
        raise TimeoutError("server")

    with pytest.raises(TimeoutError, match="server"):
        called(gives_up, [sample("a")])


def test_the_convention_is_told_by_names_unless_the_spec_says_it() -> None:
    def both(completions: Any, solution_str: Any = None) -> Any: ...

    def trl(completions: Any) -> Any: ...

    assert calling_of("f", both).style == "verl"
    assert calling_of("f", both, "trl").style == "trl"
    with pytest.raises(SpecError, match="takes no argument 'solution_str' \\(it takes completions"):
        calling_of("f", trl, "verl")


def test_verls_ground_truth_must_be_among_the_columns() -> None:
    def compute_score(
        data_source: Any, solution_str: Any, ground_truth: Any, extra_info: Any = None
    ) -> Any: ...

    calling = calling_of("f", compute_score)
    assert calling.missing(["answer"]) == ["ground_truth"]
    assert calling.missing(["ground_truth"]) == []
    assert calling.missing(["reward_model"]) == []


def test_trls_log_functions_can_be_called_and_keep_nothing() -> None:
    def logs(completions: Any, log_extra: Any, log_metric: Any) -> list[float]:
        log_extra("text", list(completions))
        log_metric("mean", 1.0)
        return [1.0] * len(completions)

    assert called(logs, [sample("a"), sample("b")]) == [1.0, 1.0]
    assert calling_of("f", logs).missing([]) == []


def test_a_misspelt_argument_is_named_with_the_one_it_is_near_to() -> None:
    def wrong(completions: Any, completions_ids: Any) -> list[float]:
        return completions_ids

    missing = calling_of("f", wrong).missing(["answer"])
    assert lacking_words(missing, ["answer"]).endswith(
        "did you mean 'completion_ids' by 'completions_ids'?"
    )
    assert "did you mean" not in lacking_words(["zebra"], ["answer"])
    assert "'answer'" in lacking_words(["anwser"], ["answer"])
    with pytest.raises(SpecError, match="did you mean 'completions' by 'completion'"):
        calling_of("f", lambda completion: completion)

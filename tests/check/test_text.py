from __future__ import annotations

import math
from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.text import template_line, token_lines
from kltune.grade import Grade


def bad(**tokens: object) -> dict[str, Grade]:
    """Lines that don't pass, with one number of the tokens changed."""
    found = token_lines(replace(case.tokens(), **tokens), case.stops())
    return {line.name: line.grade for line in found if line.grade is not Grade.PASS}


def bad_stops(**stops: object) -> dict[str, Grade]:
    found = token_lines(case.tokens(), replace(case.stops(), **stops))
    return {line.name: line.grade for line in found if line.grade is not Grade.PASS}


def test_a_sound_set_up_passes_every_line_without_a_remedy() -> None:
    lines = token_lines(case.tokens(), case.stops())
    assert [line.name for line in lines] == [
        "tokenizer", "vocabulary", "bos", "template", "stop_ids", "pad",
    ]  # fmt: skip
    assert {(line.grade, line.remedy) for line in lines} == {(Grade.PASS, "")}


@pytest.mark.parametrize(
    ("tokens", "name", "grade"),
    [
        ({"text_nll_token": 9.3, "answer_entropy_token": 3.1}, "tokenizer", Grade.FAIL),
        ({"text_nll_token": 8.8, "answer_entropy_token": 2.9}, "tokenizer", Grade.WARN),
        ({"text_nll_token": math.nan, "answer_entropy_token": 3.1}, "tokenizer", Grade.FAIL),
        ({"text_nll_token": math.nan, "relabelled_entropy_token": 0.0}, "tokenizer", Grade.WARN),
        ({"reward_special_ids_agree": False}, "tokenizer", Grade.FAIL),
        ({"reward_ids_agree": False}, "tokenizer", Grade.FAIL),
        ({"unknown_frac": 0.1}, "tokenizer", Grade.WARN),
        ({"text_kept_frac": 0.9}, "tokenizer", Grade.WARN),
        ({"highest_id": 32}, "vocabulary", Grade.FAIL),
        ({"embedding_rows": 29}, "vocabulary", Grade.FAIL),
        ({"reward_rows": 29}, "vocabulary", Grade.FAIL),
        ({"reward_rows": 30}, "vocabulary", Grade.WARN),
        ({"bos_most": 2}, "bos", Grade.FAIL),
        ({"bos_least": 0}, "bos", Grade.FAIL),
        ({"bos_least": 0, "bos_most": 0}, "bos", Grade.WARN),
        ({"template_most": 2}, "template", Grade.FAIL),
        ({"template_least": 0}, "template", Grade.FAIL),
        ({"template_copies": 0}, "template", Grade.FAIL),
        ({"template_copies": 1, "template_tells_apart": False}, "template", Grade.FAIL),
        ({"template_copies": 2}, "template", Grade.WARN),
        (
            {"template_copies": 2, "template_least": None, "template_most": None},
            "template",
            Grade.WARN,
        ),
        ({"unknown_frac": 1.0}, "tokenizer", Grade.FAIL),
    ],
)
def test_each_fault_of_tokens_has_its_name(
    tokens: dict[str, object], name: str, grade: Grade
) -> None:
    assert bad(**tokens) == {name: grade}


@pytest.mark.parametrize(
    ("stops", "name", "grade"),
    [
        ({"missing_stop_ids": (7,)}, "stop_ids", Grade.FAIL),
        ({"stray_stop_ids": (7,)}, "stop_ids", Grade.FAIL),
        ({"ended_frac": 0.0}, "stop_ids", Grade.WARN),
        ({"prompts_ended_frac": 1.0, "tokenizer_ends_texts": True}, "stop_ids", Grade.FAIL),
        ({"prompts_ended_frac": 0.1}, "stop_ids", Grade.WARN),
        ({"pad_is_in_vocabulary": False}, "pad", Grade.FAIL),
        ({"pad_in_text_frac": 0.1}, "pad", Grade.FAIL),
    ],
)
def test_each_fault_of_stop_and_pad_has_its_name(
    stops: dict[str, object], name: str, grade: Grade
) -> None:
    assert bad_stops(**stops) == {name: grade}


def test_a_stop_token_as_padding_is_harmless_though_templates_hold_it() -> None:
    assert bad_stops(pad_is_stop=True, has_own_pad=False, pad_in_text_frac=0.2) == {}


def test_no_bos_is_right_where_the_tokenizer_has_none() -> None:
    assert bad(bos_id=None, adds_bos=False, bos_least=0, bos_most=0) == {}


def test_plain_prompts_need_no_template() -> None:
    assert bad(uses_template=False, template_least=None, template_most=None) == {}


def test_a_base_that_learned_answers_alone_is_as_surprised_by_any_prompt() -> None:
    assert bad(text_nll_token=9.3) == {}


def test_other_special_ids_in_the_config_are_told_and_harmless() -> None:
    found = replace(case.tokens(), special_id_conflicts=("eos_token_id: tokenizer 1, model 2",))
    line = token_lines(found, case.stops())[0]
    assert (line.grade, "tokenizer 1, model 2" in line.shown) == (Grade.PASS, True)


def test_a_sweep_is_not_refused_for_a_model_that_reads_no_better_than_noise() -> None:
    found = replace(case.tokens(), text_nll_token=9.3, answer_entropy_token=3.1)
    (line, *_) = token_lines(found, case.stops(), only_certain=True)
    assert line.grade is Grade.WARN
    found = replace(found, reward_ids_agree=False)
    (line, *_) = token_lines(found, case.stops(), only_certain=True)
    assert line.grade is Grade.FAIL, "other ids are certain"


def test_prompts_less_expected_than_noise_warn_only_beyond_its_spread() -> None:
    assert bad(text_nll_token=9.6, relabelled_nll_std=0.2) == {"tokenizer": Grade.WARN}
    assert bad(text_nll_token=9.6, relabelled_nll_std=0.4) == {}, "a built-in model has that"
    assert bad(text_nll_token=8.0, relabelled_nll_std=0.2) == {}


def test_a_prompt_of_unknown_words_alone_stops_a_sweep_too() -> None:
    found = replace(case.tokens(), unknown_frac=1.0, text_nll_token=math.nan)
    (line, *_) = token_lines(found, case.stops(), only_certain=True)
    assert (line.name, line.grade) == ("tokenizer", Grade.FAIL)
    assert "100 % of the prompts' tokens are unknown" in line.shown


def test_a_template_that_marks_no_turn_is_not_called_none() -> None:
    found = replace(case.tokens(), template_least=None, template_most=None, template_copies=1)
    line = template_line(found)
    assert line.grade is Grade.PASS
    assert "No template" not in line.shown

from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.scale import Scale
from kltune.check.steps import fixed_point_line, mask_line, start_line
from kltune.grade import Grade

FP32, BF16 = Scale("fp32", 0.5, 1.0), Scale("bf16", 0.5, 1.0)


def test_a_sound_set_up_passes_every_line_without_a_remedy() -> None:
    lines = (
        start_line(case.reference(), FP32),
        fixed_point_line(case.fixed_point(), FP32),
        mask_line(case.masks()),
    )
    assert {(line.grade, line.remedy) for line in lines} == {(Grade.PASS, "")}


@pytest.mark.parametrize(
    "fields", [{"exact_kl_token": 0.01}, {"k3_token": 0.01}, {"largest_gap": 0.2}]
)
def test_a_policy_that_is_not_its_reference_fails(fields: dict[str, float]) -> None:
    assert start_line(replace(case.reference(), **fields), FP32).grade is Grade.FAIL


def test_rounding_in_bf16_is_no_kl_but_is_a_floor() -> None:
    rough = replace(case.reference(), precision="bf16", exact_kl_token=1e-4, floor_kl_token=2e-4)
    assert start_line(rough, BF16).grade is Grade.PASS
    fine = start_line(rough, Scale("bf16", 0.001, 0.001))
    assert fine.grade is Grade.WARN
    assert "fp32" in fine.remedy


@pytest.mark.parametrize(
    ("fields", "grade", "word"),
    [
        ({"weights_kept_at_zero": False, "changed_at_zero": 12}, Grade.FAIL, "changed 12"),
        ({"reference_kept": False}, Grade.FAIL, "reference"),
        ({"reference_logprobs_kept": False}, Grade.FAIL, "reference"),
        ({"shares_storage": True}, Grade.FAIL, "share memory"),
        ({"weights_moved": False}, Grade.FAIL, "moved no weight"),
        ({"weights_moved": False, "zero_group_frac": 1.0}, Grade.WARN, "same score"),
        ({"kl_after_token": 3.0}, Grade.WARN, "above the limit"),
        ({"kl_after_token": float("nan")}, Grade.WARN, "above the limit"),
    ],
)
def test_a_step_that_moves_the_wrong_thing_says_which(
    fields: dict[str, object], grade: Grade, word: str
) -> None:
    line = fixed_point_line(replace(case.fixed_point(), **fields), FP32)
    assert (line.grade, bool(line.remedy)) == (grade, True)
    assert word in line.shown


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"by_mask": 700, "wrong_rows": 3}, "700 tokens count, by hand 600"),
        ({"wrong_rows": 2}, "2 completions are wrong"),
        ({"by_lengths": 601}, "lengths"),
        ({"scored": 720}, "720 positions"),
        ({"weighted": 0.2}, "outside the completions"),
        ({"wrong_ends": 1}, "ended"),
        (
            {"longest": 20, "prompt_tail_frac": 1.0},
            "100 % begin with the last token of their prompt",
        ),
        ({"step_metric": 512.0}, "tokens/step"),
    ],
)
def test_each_way_of_counting_that_differs_from_the_hand_fails(
    fields: dict[str, object], word: str
) -> None:
    line = mask_line(replace(case.masks(), **fields))
    assert line.grade is Grade.FAIL
    assert word in line.shown


def test_a_token_of_probability_one_is_no_fault() -> None:
    assert mask_line(replace(case.masks(), scored=590)).grade is Grade.PASS


def test_without_a_step_the_rest_is_judged() -> None:
    assert mask_line(replace(case.masks(), step_by_hand=None, step_metric=None)).grade is Grade.PASS


def test_completions_that_begin_like_their_prompts_end_warn() -> None:
    line = mask_line(replace(case.masks(), prompt_tail_frac=1.0))
    assert (line.grade, bool(line.remedy)) == (Grade.WARN, True)


def test_scores_that_are_lost_are_not_called_equal() -> None:
    still = replace(
        case.fixed_point(),
        weights_moved=False,
        changed_frac=0.0,
        grad_norm=0.0,
        zero_group_frac=1.0,
    )
    line = fixed_point_line(still, FP32, "the mean drowns the spread")
    assert line.grade is Grade.FAIL
    assert "the mean drowns the spread" in line.shown
    assert "same score" not in line.shown
    assert "same score" in fixed_point_line(still, FP32).shown

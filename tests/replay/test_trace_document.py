from __future__ import annotations

from dataclasses import replace

import pytest
from replay_case import traced

from kltune.metrics.trace import StepTrace
from kltune.replay import trace_document
from kltune.replay.checks import check_trace
from kltune.replay.plain_text import render_text
from kltune.replay.trace_document import loss_line
from kltune.report.page import render_page


def text_of(trace: StepTrace, metrics: dict[str, float], recorded: float | None = None) -> str:
    document = trace_document.trace_document(
        "Trial 7", trace, check_trace(trace, metrics), recorded
    )
    return render_text(document)


def test_the_loss_is_shown_as_a_sum_beside_the_recorded_one() -> None:
    trace, _ = traced(penalty="k2-loss", beta=1.0)
    update = trace.updates[0]
    line = loss_line(trace, update.loss)
    policy, kl, loss = (f"{x:.7g}" for x in (update.loss_policy, update.loss_kl, update.loss))
    assert line.startswith("loss = policy ")
    assert line.endswith(f"; train/loss in the record: {loss}")
    for shown in (policy, kl):
        assert shown[:8] in line
    assert "the record has no train/loss of step 3" in loss_line(trace, None)


def test_one_completion_per_block_and_one_token_per_line() -> None:
    trace, metrics = traced(penalty="k2-loss", beta=1.0)
    text = text_of(trace, metrics, 0.25)
    assert text.count("\n  completion  ") == len(trace.completions) == 8
    for completion in trace.completions:
        block = text.split(f"Row {completion.row}, prompt {completion.prompt_id}\n")[1]
        lines = block.split("\n\n")[1].splitlines()
        assert len(lines) == 1 + completion.num_tokens + 1  # header, tokens, sum
        assert [line.split()[1] for line in lines[1:-1]] == list(completion.token_texts)
    assert text.count("  yes\n") >= 18
    assert "NO" not in text


def test_several_updates_and_an_entropy_bonus_are_told() -> None:
    trace, metrics = traced({"epochs": 2, "entropy_bonus": 0.1})
    text = text_of(trace, metrics)
    assert "update 1: loss = policy" in text
    assert " - entropy " in text
    assert "mean over 2 updates" in text
    assert "Ratio and losses are those of the first update that holds the completion" in text


def test_a_sum_that_does_not_agree_makes_the_headline_doubtful() -> None:
    trace, metrics = traced()
    checks = check_trace(trace, {**metrics, "train/loss": 5.0})
    document = trace_document.trace_document("Trial 7", trace, checks, None)
    assert not document.is_answer
    assert f"1 of {len(checks)} sums do not agree" in document.headline
    (wrong,) = [line for line in render_text(document).splitlines() if "  NO " in line]
    assert wrong.startswith("train/loss ")


def test_text_of_a_model_can_not_become_markup() -> None:
    trace, metrics = traced()
    first = trace.completions[0]
    bad = replace(first, completion="<script>", token_texts=("<b>", *first.token_texts[1:]))
    trace = replace(trace, completions=(bad, *trace.completions[1:]))
    page = render_page(
        trace_document.trace_document("Trial 7", trace, check_trace(trace, metrics), None)
    )
    assert page.count("<script>") == 2  # the page's own
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_a_large_batch_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, metrics = traced()
    monkeypatch.setattr(trace_document, "MOST_TOKENS", 1)
    text = text_of(trace, metrics)
    assert text.count("\n  completion  ") == 1
    assert "1 of 8 completions are shown; trace.json holds all." in text


def test_spaces_and_line_ends_of_a_token_are_seen() -> None:
    trace, metrics = traced()
    first = trace.completions[0]
    texts = (" a", "\n", "", *first.token_texts[3:])
    trace = replace(trace, completions=(replace(first, token_texts=texts), *trace.completions[1:]))
    text = text_of(trace, metrics)
    assert "␣a" in text
    assert "⏎" in text
    assert "(empty)" in text

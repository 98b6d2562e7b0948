from __future__ import annotations

import json

from kltune.metrics.jsonl import encode
from kltune.metrics.trace import StepTrace, TracedCompletion, TracedRow, TracedUpdate


def test_a_trace_is_strict_json_and_a_number_that_is_not_finite_is_named() -> None:
    completion = TracedCompletion(
        row=0,
        prompt_id="p1",
        prompt="how long?",
        prompt_ids=(5, 6),
        completion="8 minutes",
        completion_ids=(7, 1, 0),
        mask=(1, 1, 0),
        token_texts=("8 minutes", "<eos>"),
        ended=True,
        proxy=None,
        score=0.0,
        reward=0.0,
        columns={"policy": (-0.5, float("nan"))},
    )
    row = TracedRow(0, 0.5, {"logprob": (-0.5, -0.25)})
    update = TracedUpdate(1.0, 1.0, 0.0, 0.0, None, (row,))
    trace = StepTrace(7, 3, {"algorithm": "grpo"}, (completion,), (update,))
    assert completion.num_tokens == 2
    facts = json.loads(encode(trace.as_json()))
    assert facts["completions"][0]["columns"]["policy"] == [-0.5, None]
    assert facts["non_finite"] == ["completions.columns.policy"]
    assert facts["updates"][0]["rows"][0]["weight"] == 0.5
    assert "nats" in facts["columns"]["completions"]["policy"]

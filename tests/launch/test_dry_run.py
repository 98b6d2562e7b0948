"""A dry run says what a sweep would cost and leaves nothing behind."""

from __future__ import annotations

import io
import json
from pathlib import Path

from spec_files import adaptive, write

from kltune.launch.assemble import find_inputs
from kltune.launch.dry_run import dry_run, make_plan
from kltune.spec.load import load_spec


def spec_of(folder: Path, *overrides: str):
    spec = {**adaptive(), "baselines": ["trl-grpo-0.18"]}
    spec["search"]["beta"]["zero"] = True
    return load_spec(write(folder, spec), ("budget.trials=6", *overrides))


def test_completions_are_counted(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "evaluate.prompts=5", "evaluate.every=8")
    plan = make_plan(spec, tmp_path / "study", find_inputs(spec))
    evaluations = 4  # steps 0, 8, 16 and 20
    judged = evaluations * 5 * 2
    assert plan.gold_calls == 6 * judged
    assert plan.reward_calls == 6 * (20 * 8 + judged)
    assert sum(plan.trials_by_origin.values()) == 6
    assert plan.first_settings[0][0] == "baseline:trl-grpo-0.18"
    assert plan.seconds is not None
    assert plan.disk_bytes is not None
    assert plan.disk_bytes > 6 * 180_000  # the adapters alone
    assert plan.seconds > 0
    assert not (tmp_path / "study").exists()


def test_json_is_strict_and_goes_to_the_result(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    result = io.StringIO()
    assert dry_run(spec, tmp_path / "study", find_inputs(spec), result) == 0
    facts = json.loads(result.getvalue())
    assert facts["first_settings"][1]["origin"] == "zero"


def test_recipes_wait_for_a_proxy_that_must_be_learned(tmp_path: Path) -> None:
    learned = 'task={"builtin": "kitchen", "proxy": {"learned": {"from": "gold"}}}'
    spec = spec_of(tmp_path, learned)
    plan = make_plan(spec, tmp_path / "study", find_inputs(spec))
    assert "baseline:trl-grpo-0.18" not in [origin for origin, _ in plan.first_settings]
    assert any("learned first" in note for note in plan.notes)
    assert not (tmp_path / "study").exists()

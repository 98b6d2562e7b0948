"""What a spec names becomes a base, a task, sigma_R and a bank."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import minimal, own_task, write

from kltune.errors import SpecError
from kltune.launch.assemble import (
    build_bank,
    find_inputs,
    keep_scale,
    load_ground,
    num_slots,
    reference_scale,
)
from kltune.spec.load import LoadedSpec, load_spec


def loaded_spec(folder: Path, *overrides: str) -> LoadedSpec:
    return load_spec(write(folder, minimal()), overrides)


def test_the_kitchen_spec_becomes_a_bank_that_trains(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path, "evaluate.prompts=4")
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    scale = reference_scale(ground, spec.spec, tmp_path)
    assert scale.sigma > 0
    assert 1 < scale.mean_tokens <= spec.spec.trainer.max_new_tokens
    bank = build_bank(ground, spec.spec, scale)
    assert bank.num_slots == 1
    assert bank.free_slots() == (0,)


def test_sigma_r_is_measured_once_and_then_read(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path)
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    first = reference_scale(ground, spec.spec, tmp_path)
    assert not (tmp_path / "reference.json").exists()
    keep_scale(tmp_path, first)
    assert reference_scale(ground, spec.spec, tmp_path) == first
    text = (tmp_path / "reference.json").read_text(encoding="utf-8")
    (tmp_path / "reference.json").write_text(
        text.replace(f"{first.sigma}", "123.0"), encoding="utf-8"
    )
    assert reference_scale(ground, spec.spec, tmp_path).sigma == 123.0


def test_a_proxy_that_never_varies_is_refused(tmp_path: Path) -> None:
    code = "def proxy(completions): return [0.0] * len(completions)\n"
    code += "def gold(completions): return [float(len(c)) for c in completions]\n"
    spec_file = own_task(tmp_path)
    (tmp_path / "rewards.py").write_text(code, encoding="utf-8")
    (tmp_path / "prompts.txt").write_text(
        "".join(f"question {i}\n" for i in range(12)), encoding="utf-8"
    )
    spec = load_spec(write(tmp_path, spec_file))
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    with pytest.raises(SpecError, match="sigma_R = 0"):
        reference_scale(ground, spec.spec, tmp_path)


def test_more_tokens_than_the_model_has_positions_are_refused(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path, "trainer.max_new_tokens=100000")
    with pytest.raises(SpecError, match=r"trainer\.max_new_tokens: 100000"):
        load_ground(spec.spec, find_inputs(spec), tmp_path)


def test_slots_are_as_asked_and_never_more_than_the_trials(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path)
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    asked = load_spec(spec.path, ("budget.slots=3",)).spec
    too_many = load_spec(spec.path, ("budget.slots=9", "budget.trials=2")).spec
    assert num_slots(asked, ground) == 3
    assert num_slots(too_many, ground) == 2


def test_a_further_gold_that_scores_like_the_proxy_is_refused_on_the_references_answers(
    tmp_path: Path,
) -> None:
    code = "def proxy(completions): return [float(len(c)) for c in completions]\n"
    code += "def gold(completions): return [float(c.count('e')) for c in completions]\n"
    code += "def tone(completions): return [sum(1.0 for _ in c) for c in completions]\n"
    spec_file = own_task(tmp_path)
    spec_file["task"]["golds"] = {"tone": "rewards.py:tone"}
    (tmp_path / "rewards.py").write_text(code, encoding="utf-8")
    (tmp_path / "prompts.txt").write_text(
        "".join(f"question {i}\n" for i in range(12)), encoding="utf-8"
    )
    spec = load_spec(write(tmp_path, spec_file))
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    assert list(ground.data.golds) == ["tone"]
    with pytest.raises(SpecError, match=r"task\.golds\.tone .*gave the same scores"):
        reference_scale(ground, spec.spec, tmp_path)


def test_a_confirmation_is_judged_on_test_prompts_and_keeps_every_completion(
    tmp_path: Path,
) -> None:
    spec = loaded_spec(tmp_path)
    inputs = find_inputs(spec)
    ground = load_ground(spec.spec, inputs, tmp_path, judged_on="test")
    assert ground.data.select.prompts == inputs.task.splits.test
    assert ground.data.train.prompts == inputs.task.splits.train
    scale = reference_scale(ground, spec.spec, tmp_path)
    assert build_bank(ground, spec.spec, scale).parts.settings.keep_all
    usual = load_ground(spec.spec, inputs, tmp_path)
    assert usual.data.select.prompts == inputs.task.splits.select
    assert not build_bank(usual, spec.spec, scale).parts.settings.keep_all


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("[float('nan')] * len(completions)", r"returned no score \(None or NaN\)"),
    ],
    ids=["raises", "nan"],
)
@pytest.mark.parametrize("name", ["proxy", "gold", "tone"])
def test_a_scorer_that_fails_before_any_trial_is_a_mistake_in_the_spec_which_names_its_field(
    tmp_path: Path, name: str, broken: str, what: str
) -> None:
    bodies = {
        "proxy": "[float(len(c)) for c in completions]",
        "gold": "[float(c.count('e')) for c in completions]",
        "tone": "[float(c.count('a')) for c in completions]",
    }
    bodies[name] = broken
    code = "".join(f"def {n}(completions): return {body}\n" for n, body in bodies.items())
    spec_file = own_task(tmp_path)
    spec_file["task"]["golds"] = {"tone": "rewards.py:tone"}
    (tmp_path / "rewards.py").write_text(code, encoding="utf-8")
    (tmp_path / "prompts.txt").write_text(
        "".join(f"question {i}\n" for i in range(12)), encoding="utf-8"
    )
    spec = load_spec(write(tmp_path, spec_file))
    ground = load_ground(spec.spec, find_inputs(spec), tmp_path)
    field = r"task\.golds\.tone" if name == "tone" else rf"task\.{name}"
    if name == "proxy" and "no score" in what:
        what = "could score none of"  # the proxy may leave some out
    with pytest.raises(SpecError, match=rf"^{field}: scorer rewards\.py:{name} {what}"):
        reference_scale(ground, spec.spec, tmp_path)

"""The three things that can be audited become a pair that is probed; the built-in model, few samples."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from spec_files import minimal, write

from kltune.audit.gather import FULL, LOCAL, POLICY, gather
from kltune.audit.result import AuditResult
from kltune.errors import RunError, SpecError
from kltune.launch.assemble import build_bank, find_inputs, keep_scale, load_ground, reference_scale
from kltune.launch.audit import AuditRequest
from kltune.launch.subjects import find_subject
from kltune.spec.load import load_spec, resolved
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.tasks.kitchen.task import BASE
from kltune.trial.folder import TrialFolder


def spec(**changes: Any) -> dict[str, Any]:
    trainer = {
        "steps": 20,
        "prompts": 2,
        "group_size": 4,
        "max_new_tokens": 6,
        "learning_rate": 0.02,
    }
    return {**minimal(), "trainer": trainer, "baselines": ["verl-ppo"], **changes}


def audited(request: AuditRequest) -> AuditResult:
    subject = find_subject(request, request.kind())
    return gather(subject.blocks, subject.question)


def test_a_spec_is_its_start_policy_after_some_steps_against_its_start(tmp_path: Path) -> None:
    request = AuditRequest(write(tmp_path, spec()), steps=3, samples=64, seed=4)
    subject = find_subject(request, "spec")
    assert subject.name == "small"
    assert subject.question.policy == "small after 3 steps with beta 0"
    assert "verl-ppo" in subject.question.setting
    assert subject.question.beta > 0
    result = gather(subject.blocks, subject.question)
    assert result.divergences.kl_token.value > 1e-4
    assert [row.penalty for row in result.penalties] == list(Penalty)
    assert result.pair.num_completions == 64
    assert result.pair.num_blocks == 16


def test_another_number_of_completions_than_asked_for_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, spec())

    def notes(samples: int | None) -> str:
        subject = find_subject(AuditRequest(path, steps=1, samples=samples), "spec")
        return "; ".join(subject.question.notes)

    told = "--samples 1 became 16: at least 4 blocks of whole groups of 4 completions"
    assert told in notes(1)
    assert "--samples 103 became 100: blocks of whole groups of 4 completions" in notes(103)
    assert notes(64) == notes(None) == ""


@pytest.mark.slow
def test_a_seed_changes_the_policy_and_the_samples_and_repeats_them(tmp_path: Path) -> None:
    path = write(tmp_path, spec())
    kls = [
        audited(AuditRequest(path, steps=1, samples=16, seed=seed)).divergences.kl_seq.value
        for seed in (1, 1, 2)
    ]
    assert kls[0] == kls[1] != kls[2]


def study(tmp_path: Path) -> Path:
    """A study with one trial that was trained and pushed away from its start, both checkpoints kept."""
    loaded = load_spec(write(tmp_path, spec()), ("budget.slots=1",))
    folder = tmp_path / "study"
    setting = TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=0.05)
    ground = load_ground(loaded.spec, find_inputs(loaded), None)
    scale = reference_scale(ground, loaded.spec, None)
    bank = build_bank(ground, loaded.spec, scale)
    trial = TrialFolder(folder, 7, 1)
    trial.write_config(setting, "sobol", scale.sigma, KLUnit.TOKEN, BetaUnit.REWARD)
    bank.admit(0, 7, setting, None)
    bank.train_step()
    bank.save_adapter(0, trial.best_adapter)
    bank.train_step()
    bank.save_checkpoint(0, trial.last_checkpoint)
    keep_scale(folder, scale)
    (folder / "resolved.json").write_text(json.dumps(resolved(loaded.spec)), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_trial_is_its_checkpoint_against_its_reference(tmp_path: Path) -> None:
    folder = study(tmp_path)
    kls = {}
    for which, step in (("best", 1), ("last", 2)):
        request = AuditRequest(folder, trial=7, checkpoint=which, samples=32)  # type: ignore[arg-type]
        subject = find_subject(request, "trial")
        assert subject.question.policy == f"trial 7 of small at step {step} ({which} checkpoint)"
        assert subject.question.beta == 0.1
        kls[which] = gather(subject.blocks, subject.question).divergences.kl_seq.value
    assert 0 < kls["best"] < kls["last"]
    shutil.rmtree(folder / "trials" / "00007" / "checkpoints" / "best")
    with pytest.raises(SpecError, match=r"no best checkpoint \(it has: last\)"):
        find_subject(AuditRequest(folder, trial=7), "trial")


def other_model(folder: Path) -> Path:
    """The built-in model, its head a little different."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(BASE)
    head = model.get_output_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head.add_(0.02 * torch.randn(head.shape, generator=generator))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(BASE).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_two_models_are_compared_on_given_prompts_without_a_reward(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(
        "".join(f"How long do I boil {i} eggs?\n" for i in range(12)), encoding="utf-8"
    )
    policy = other_model(tmp_path / "policy")
    request = AuditRequest(policy, reference=BASE, prompts=prompts, samples=128)
    subject = find_subject(request, "models")
    blocks = list(subject.blocks)
    reseeded = find_subject(replace(request, seed=1), "models")
    assert not np.array_equal(next(iter(reseeded.blocks)).logprobs_NT, blocks[0].logprobs_NT)
    assert set(blocks[0].gradients) == {*(p.value for p in Penalty), FULL, LOCAL}
    assert POLICY not in blocks[0].gradients
    result = gather(blocks, subject.question)
    assert result.divergences.kl_token.value > 1e-3
    assert result.norms.policy is None
    same = AuditRequest(BASE, reference=BASE, prompts=prompts, samples=32)
    assert audited(same).divergences.kl_token.value < 1e-6


def test_models_of_different_vocabularies_are_refused(tmp_path: Path) -> None:
    # field case A58
    import tiny

    tiny.llama().save_pretrained(tmp_path / "tiny")
    tiny.tokenizer().save_pretrained(tmp_path / "tiny")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"question {i}\n" for i in range(12)), encoding="utf-8")
    request = AuditRequest(BASE, reference=tmp_path / "tiny", prompts=prompts)
    with pytest.raises(SpecError, match="another vocabulary"):
        find_subject(request, "models")


def test_a_diverged_policy_is_no_subject(tmp_path: Path) -> None:
    path = write(tmp_path, {**spec(), "trainer": {**spec()["trainer"], "learning_rate": 1e30}})
    with pytest.raises(RunError, match="not finite"):
        find_subject(AuditRequest(path, steps=3), "spec")

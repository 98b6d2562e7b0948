from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import soundness_case as case
from spec_files import minimal, write

from kltune.check.lines import OF_PROXY, cheap_lines, lines_of, lines_of_spec, spread_of
from kltune.grade import Grade
from kltune.spec.load import load_spec
from kltune.spec.study import StudySpec
from kltune.tasks.kitchen import task as kitchen
from kltune.trainer.soundness.facts import CheapSoundness, Soundness


@pytest.fixture
def spec(tmp_path: Path) -> StudySpec:
    return load_spec(write(tmp_path, minimal() | {"objective": {"kl_limit": 0.5}})).spec


def cheap(found: Soundness) -> CheapSoundness:
    return CheapSoundness(found.tokens, found.stops, found.reference, found.masks, found.scoring)


def test_every_name_of_the_contract_has_its_line(spec: StudySpec) -> None:
    lines = (*lines_of_spec(spec, kitchen.splits()), *lines_of(case.sound(), spec))
    assert {line.name for line in lines} == {
        "tokenizer", "bos", "pad", "stop_ids", "template", "vocabulary", "padding", "logprobs",
        "temperature", "weights", "start_kl", "fixed_point", "sampler", "dropout", "mask", "proxy", "gold",
        "splits", "reward_scale", "controller", "memory", "spec",
    }  # fmt: skip
    assert len(lines) == 22
    assert set(OF_PROXY) <= {line.name for line in lines}


def test_what_is_sound_passes(spec: StudySpec) -> None:
    assert {line.grade for line in lines_of(case.sound(), spec)} == {Grade.PASS}
    lines = cheap_lines(cheap(case.sound()), spec, kitchen.splits())
    assert {line.grade for line in lines} == {Grade.PASS}


def test_the_proxy_is_taken_per_token_of_the_completions_drawn() -> None:
    found = case.sound()
    spread = spread_of(found.masks, found.scoring)
    assert spread is not None
    assert (spread.sigma, spread.std) == (0.5, 0.6)
    assert spread.mean_tokens == pytest.approx(600 / 64)


def test_a_proxy_that_failed_leaves_the_other_lines_standing(spec: StudySpec) -> None:
    found = case.sound()
    broken = replace(
        found.scoring.proxy, fault="it raised", mean=None, std=None, group_std=None, num_samples=0
    )
    scoring = replace(found.scoring, proxy=broken, pairs=())
    lines = lines_of(replace(found, scoring=scoring), spec)
    failed = [line.name for line in lines if line.grade is Grade.FAIL]
    assert failed == ["proxy"]
    (scale,) = (line for line in lines if line.name == "reward_scale")
    assert (scale.grade, "can't be told" in scale.shown.lower()) == (Grade.WARN, True)


def test_the_precision_of_the_spec_judges(spec: StudySpec) -> None:
    found = case.sound()
    rough = replace(found, sampler=replace(found.sampler, start_gap=0.05))
    bf16 = spec.model_copy(
        update={"trainer": spec.trainer.model_copy(update={"precision": "bf16"})}
    )
    assert {line.name for line in lines_of(rough, spec) if line.grade is Grade.FAIL} == {"sampler"}
    assert {line.grade for line in lines_of(rough, bf16)} == {Grade.PASS}

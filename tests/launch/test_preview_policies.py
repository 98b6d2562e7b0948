"""A study of the built-in task with two trained trials; their policies are weighed in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spec_files import minimal, write

from kltune.launch.assemble import build_bank, find_inputs, load_ground
from kltune.launch.preview import Drawn, PreviewRequest
from kltune.launch.preview_samples import draw_samples
from kltune.metrics.jsonl import write_json
from kltune.metrics.record import RewardScale
from kltune.preview.curves import trace_tilt
from kltune.spec.load import load_spec, resolved
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.statistics.reweight import balance
from kltune.trial.folder import TrialFolder

SCALE = RewardScale(sigma=0.6, std=0.6, mean=0.0, num_groups=8, mean_tokens=6.0)
KL: dict[int, float] = {}
"""Exact KL of each trial's policy, nats per sequence, by its own evaluation; filled by the fixture."""


def spec() -> dict[str, Any]:
    trainer = {
        "steps": 4,
        "prompts": 4,
        "group_size": 8,
        "max_new_tokens": 8,
        "learning_rate": 0.02,
    }
    evaluate = {"prompts": 16, "samples": 8}
    return {**minimal(), "trainer": trainer, "evaluate": evaluate}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("study")
    loaded = load_spec(write(folder, spec()))
    write_json(folder / "resolved.json", resolved(loaded.spec))
    bank = build_bank(load_ground(loaded.spec, find_inputs(loaded), None), loaded.spec, SCALE, 1)
    for number, steps in ((0, 2), (1, 4)):
        setting = TrialSpec(beta=0.0, learning_rate=0.02, seed=number)
        trial = TrialFolder(folder, number, 1)
        trial.write_config(setting, "sobol", 0.6, KLUnit.TOKEN, BetaUnit.REWARD)
        bank.admit(0, number, setting, None)
        trial.append_event("started", 0)
        trial.append_eval(bank.evaluate([0])[0])
        for _ in range(steps):
            bank.train_step()
        (metrics,) = bank.evaluate([0])
        KL[number] = metrics.kl_seq
        trial.append_eval(metrics)
        bank.save_adapter(0, trial.best_adapter)
        bank.evict(0)
    yield folder
    KL.clear()


RATIOS: list[np.ndarray] = []
"""What went into the balance heuristic, by the fixture below."""


@pytest.fixture(scope="module")
def drawn(study: Path) -> Iterator[Drawn]:
    def keep(log_ratio_SPM: np.ndarray, counts_S: np.ndarray) -> np.ndarray:
        RATIOS.append(log_ratio_SPM)
        return balance(log_ratio_SPM, counts_S)

    request = PreviewRequest(study, samples=64, prompts=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kltune.launch.preview_samples.balance", keep)
        yield draw_samples(request, request.load("study"), study)
    RATIOS.clear()


def test_the_reference_comes_first_and_each_policy_after_it(drawn: Drawn) -> None:
    assert drawn.scored.num_reference == 64
    assert drawn.scored.proxy_PN.shape == (16, 64 + 2 * 32)
    assert drawn.subject.num_samples == 64
    assert drawn.subject.samples_per_policy == 32
    assert sorted(name.split(" at ")[0] for name in drawn.subject.policies) == [
        "trial 0",
        "trial 1",
    ]


def test_the_weights_of_the_mixture_average_to_one(drawn: Drawn) -> None:
    assert drawn.scored.log_density_PN is not None
    weights = np.exp(drawn.scored.log_density_PN)
    # The mean over the mixture of reference / mixture is 1, whatever the policies are.
    mean_P = weights.mean(axis=1)
    se = float(mean_P.std() / np.sqrt(len(mean_P)))
    assert abs(mean_P.mean() - 1) < 4 * se + 0.01
    assert weights.max() <= 2 + 1e-6  # half of the mixture is the reference
    assert weights.std() > 0.1


def test_weighted_means_are_those_of_the_reference(drawn: Drawn) -> None:
    scored = drawn.scored
    mixed = trace_tilt(scored).proxy_GP[0]
    own = scored.of_reference().proxy_PN.mean(axis=1)
    unweighted = scored.proxy_PN.mean(axis=1)
    assert np.abs(mixed - own).mean() < 0.5 * np.abs(unweighted - own).mean()


def test_log_ratios_of_a_policy_are_its_kl_on_its_own_completions(drawn: Drawn) -> None:
    (log_ratio_SPM,) = RATIOS
    assert not log_ratio_SPM[0].any()
    for place, name in enumerate(drawn.subject.policies):
        own = slice(64 + 32 * place, 64 + 32 * (place + 1))
        of_policy_P = log_ratio_SPM[1 + place][:, own].mean(axis=1)
        se = float(of_policy_P.std() / 4)
        kl = KL[int(name.split()[1])]
        assert abs(of_policy_P.mean() - kl) < 4 * se + 0.15 * kl, f"{name}: {of_policy_P} of {kl}"


def test_a_study_without_checkpoints_is_the_reference_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "resolved.json", resolved(load_spec(write(tmp_path, spec())).spec))
    request = PreviewRequest(tmp_path, samples=4, prompts=2)
    found = draw_samples(request, request.load("study"), tmp_path)
    assert found.scored.log_density_PN is None
    assert "nothing is weighed in" in capsys.readouterr().err

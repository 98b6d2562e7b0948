from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adopt_case import EXPORTERS, NEMO, OPENRLHF_NEW, TRL, VERL_GRPO, convert, exported, put, read
from export_case import target, winner

from kltune.adopt.draft import draft_from, draft_of
from kltune.export.setting import Winner
from kltune.metrics.record import RewardScale
from kltune.scaffold.draft import SpecDraft, render
from kltune.scaffold.start import Answers, start_draft
from kltune.spec.load import LoadedSpec, load_spec
from kltune.study.space import fixed_trials

SCALE = RewardScale(sigma=0.5, std=0.8, mean=0.0, num_groups=8, mean_tokens=24.0)
STEERED = """\
python3 -m openrlhf.cli.train_ppo_ray --algo.advantage.estimator gae --algo.kl.init_coef 0.05 --algo.kl.target 0.2
"""
CONFIGS = {
    "verl": ("run.sh", VERL_GRPO),
    "openrlhf": ("run.sh", OPENRLHF_NEW),
    "nemo-rl": ("grpo.yaml", NEMO),
    "trl": ("train.py", TRL),
}


def whole(folder: Path, carried: SpecDraft) -> LoadedSpec:
    """As `kltune init` puts it together, but on a model that is here."""
    draft = start_draft(Answers(name="mine")).under(carried, ("name", "task", "model"))
    return load_spec(put(folder, "spec.yaml", render(draft)))


def first_as_winner(loaded: LoadedSpec, like: Winner, mean_tokens: float) -> Winner:
    """The first baseline's setting under the proxy's scale, as an export takes it."""
    spec = loaded.spec
    setting = fixed_trials(spec, SCALE)[0].setting
    measured = replace(
        like.measured, sigma_r=0.5, std_r=0.8, mean_tokens=mean_tokens, target_kl=setting.target_kl
    )
    return replace(
        like,
        setting=setting,
        trainer=spec.trainer,
        beta_unit=spec.beta_unit,
        kl_unit=spec.kl_unit,
        measured=measured,
    )


@pytest.mark.parametrize("framework", CONFIGS)
def test_a_draft_loads_and_its_first_baseline_is_the_configs_own_setting(
    framework: str, tmp_path: Path
) -> None:
    name, text = CONFIGS[framework]
    path = put(tmp_path, name, text)
    loaded = whole(tmp_path, draft_of(framework, path))
    first = loaded.spec.baselines[0]
    assert not isinstance(first, str)
    assert first.name == f"my-{framework}"
    found = read(tmp_path, framework, text, name=name)
    sizes = {"batch": found.rows, "group": found.group}
    original = convert(found, framework, None, 0.5, **sizes)
    again = exported_again(first_as_winner(loaded, winner(), 24.0), framework, sizes)
    kl_keys = [
        key for key in original.values if "kl" in key.lower() or key in ("beta", "loss_type")
    ]
    assert kl_keys
    for key in kl_keys:
        assert again[key] == pytest.approx(original.values[key]), key


def exported_again(found: Winner, framework: str, sizes: dict[str, Any]) -> dict[str, Any]:
    return dict(EXPORTERS[framework](found, target(found, framework, **sizes)).values)


def test_what_is_carried_says_where_it_comes_from(tmp_path: Path) -> None:
    draft = draft_of("verl", put(tmp_path, "run.sh", VERL_GRPO))
    group, rate = draft.get("trainer.group_size"), draft.get("trainer.learning_rate")
    assert group is not None
    assert (group.value, group.comment) == (
        8,
        "completions per prompt: actor_rollout_ref.rollout.n",
    )
    assert rate is not None
    assert rate.value == 1e-6
    base = draft.get("model.base")
    assert base is not None
    assert base.value == "org/some-model"
    assert any("trains all weights" in warning for warning in draft.warnings)


def test_a_steered_beta_keeps_its_gain_and_target(tmp_path: Path) -> None:
    loaded = whole(tmp_path, draft_of("openrlhf", put(tmp_path, "run.sh", STEERED)))
    first = loaded.spec.baselines[0]
    assert not isinstance(first, str)
    assert (first.target_kl_token, first.horizon) == (0.2, 10000 * 64 / 1024)
    setting = fixed_trials(loaded.spec, SCALE)[0].setting
    assert (setting.beta, setting.target_kl) == (0.05, 0.2)


def test_no_kl_is_the_zero_arm(tmp_path: Path) -> None:
    found = draft_of("trl", put(tmp_path, "x.py", "GRPOConfig(beta=0.0)\n"))
    assert found.get("baselines") is None
    assert any("beta = 0 arm" in warning for warning in found.warnings)
    assert whole(tmp_path, found).spec.search.beta.zero


def test_a_biased_estimator_is_admitted_and_warned_of(tmp_path: Path) -> None:
    text = VERL_GRPO.replace("low_var_kl", "kl")
    found = draft_of("verl", put(tmp_path, "run.sh", text))
    assert any("expected gradient of 0" in warning for warning in found.warnings)
    loaded = whole(tmp_path, found)
    assert loaded.spec.allow_biased
    assert fixed_trials(loaded.spec, SCALE)[0].setting.penalty == "k1-loss"


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"])
@pytest.mark.parametrize("penalty", ["k1-reward", "k2-loss", "k3-loss"])
def test_every_setting_of_openrlhf_makes_a_spec_that_loads(
    algorithm: str, penalty: str, tmp_path: Path
) -> None:
    studied = winner(penalty, 0.1, trainer={"algorithm": algorithm, "minibatches": 2})
    out = exported(studied, "openrlhf", "0.11.0")
    assert out is not None
    found = read(tmp_path, "openrlhf", out.text)
    loaded = whole(tmp_path, draft_from(found))
    first = fixed_trials(loaded.spec, SCALE)[0].setting
    assert first.penalty == penalty
    # The beta of the study, whether OpenRLHF wrote it in raw reward or beside its advantages.
    assert first.beta == pytest.approx(0.1)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from adopt_case import ENDING, EXPORTERS, convert, exported, live, read, sigma_of
from export_case import target, winner

from kltune.adopt.convert import remarks
from kltune.errors import SpecError
from kltune.export import convert as numbers
from kltune.export.setting import Winner

VERSIONS = {
    "trl": ("0.18.2", "0.22.2", "1.9.0", "1.16.0"),
    "verl": ("0.3.0", "0.4.0", "0.7.0", "0.9.0"),
    "openrlhf": ("0.8.3", "0.10.0", "0.10.2", "0.11.0"),
    "nemo-rl": ("0.3.1", "0.5.0", "0.6.0", "0.7.0"),
}
ALGORITHMS = ("grpo", "dr-grpo", "rloo", "reinforce", "ppo")
PENALTIES = ("k1-reward", "k2-loss", "wk3-loss", "k3-loss", "k3plus-loss", None)
STEERED = {"controller": "proportional", "target_kl": 0.25, "horizon": 640.0}
OTHERS: dict[str, Any] = {
    "minibatches": 2,
    "clip_ratio_high": 0.28,
    "clip_ratio_max": 3.0,
    "aggregation": "seq-mean-token-mean",
    "temperature": 0.7,
    "max_grad_norm": 0.5,
    "weight_decay": 0.01,
}
CASES = [(framework, version) for framework, all_ in VERSIONS.items() for version in all_]


def settings() -> list[Winner]:
    found: list[Winner] = []
    for algorithm in ALGORITHMS:
        for penalty in PENALTIES:
            for steered in ({}, STEERED) if penalty else ({},):
                for other in ({}, OTHERS):
                    trainer = {"algorithm": algorithm, **other}
                    beta = 0.1 if penalty else 0.0
                    found.append(winner(penalty, beta, trainer=trainer, **steered))
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    def same(a: Any, b: Any) -> bool:
        return a == b or (isinstance(a, float) and b == pytest.approx(a, rel=1e-6))

    return sorted(k for k in {*one, *other} if not same(one.get(k), other.get(k)))


@pytest.mark.parametrize(("framework", "version"), CASES)
def test_what_was_exported_is_read_back_as_the_same_setting(
    framework: str, version: str, tmp_path: Path
) -> None:
    done = 0
    for studied in settings()[CASES.index((framework, version)) % 4 :: 4]:
        out = exported(studied, framework, version)
        if out is None:
            continue
        found = read(tmp_path, framework, out.text, version)
        again = found.winner(sigma_of(studied.trainer.algorithm), 24.0)
        to = target(studied, framework, version)
        own, back = numbers.gradient(studied), numbers.gradient(again)
        assert own == back
        if studied.setting.beta:
            # Where nothing moves it, a steered beta is held where it ended.
            was_held = studied.setting.target_kl is not None and again.setting.target_kl is None
            beta = studied.final_beta if was_held else studied.setting.beta
            price = numbers.price(studied, to, beta).value
            assert numbers.price(again, to, again.setting.beta).value == pytest.approx(price)
        assert found.unknown == ()
        assert set(found.unread) <= {"output_dir", "disable_dropout"}
        repeated = EXPORTERS[framework](again, target(again, framework, version))
        names = differing(dict(out.values), dict(repeated.values))
        # A study's rate and steps belong to its model and are not set; a configuration's are.
        assert all(re.search(r"\blr$|learning_rate$|_steps$", name) for name in names), names
        done += 1
    assert done >= 4


@pytest.mark.parametrize("framework", EXPORTERS)
def test_there_and_back_loses_nothing_or_says_what(framework: str, tmp_path: Path) -> None:
    done, lossy = 0, 0
    for studied in settings()[list(EXPORTERS).index(framework) :: 7]:
        first = exported(studied, framework, VERSIONS[framework][-1])
        if first is None:
            continue
        sigma = sigma_of(studied.trainer.algorithm)
        found = read(tmp_path, framework, first.text, VERSIONS[framework][-1])
        own = convert(found, framework, None, sigma)
        for other in EXPORTERS:
            try:
                there = convert(found, other, None, sigma)
            except SpecError:
                continue
            assert live(there) == dict(there.values)
            seen = read(tmp_path, other, there.text, VERSIONS[other][-1])
            back = convert(seen, framework, None, sigma)
            lost = differing(dict(own.values), dict(back.values))
            said = len(there.warnings) - len(remarks(found))
            assert not lost or said > 0, (framework, other, lost)
            lossy += bool(lost)
            done += 1
    assert done > 4
    assert lossy < done


def test_every_framework_has_an_ending_and_versions() -> None:
    assert set(ENDING) == set(VERSIONS) == set(EXPORTERS)


def test_a_learning_rate_is_carried_to_every_framework(tmp_path: Path) -> None:
    text = "actor_rollout_ref: {actor: {use_kl_loss: true, kl_loss_type: mse, optim: {lr: 3e-6}}}\n"
    text += "algorithm: {adv_estimator: grpo}\ndata: {train_batch_size: 256}\n"
    text += "actor_rollout_ref.rollout.n: 4\n"
    found = read(tmp_path, "verl", text)
    for to in EXPORTERS:
        values = convert(found, to).values
        (rate,) = [v for k, v in values.items() if k.rpartition(".")[2] in ("lr", "learning_rate")]
        assert rate == 3e-6

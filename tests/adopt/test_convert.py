from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from adopt_case import NEMO, OPENRLHF_NEW, TRL, VERL_GRPO, convert, put, read

from kltune.adopt.convert import Asked, as_plain, read_config, remarks
from kltune.errors import SpecError
from kltune.export.target import Sizes

PAID = "algorithm: {adv_estimator: grpo, use_kl_in_reward: true, kl_ctrl: {kl_coef: 0.2}}\n"
PAID += "data: {train_batch_size: 32}\n"
PAID += "actor_rollout_ref: {rollout: {n: 4}, actor: {ppo_mini_batch_size: 32}}\n"


def test_verls_usual_grpo_is_trls_plain_k3(tmp_path: Path) -> None:
    found = convert(read(tmp_path, "verl", VERL_GRPO, name="run.sh"), "trl")
    values = found.values
    assert (values["beta"], values["use_bias_correction_kl"]) == (0.001, False)
    assert (values["loss_type"], values["num_generations"]) == ("dapo", 8)
    assert (values["generation_batch_size"], values["per_device_train_batch_size"]) == (512, 256)
    ast.parse(found.text)


def test_trls_new_default_is_a_reverse_kl_elsewhere(tmp_path: Path) -> None:
    found = convert(read(tmp_path, "trl", TRL), "verl")
    assert found.values["actor_rollout_ref.actor.kl_loss_type"] == "mse"
    old = convert(read(tmp_path, "trl", TRL, "1.9.0"), "verl")
    assert old.values["actor_rollout_ref.actor.kl_loss_type"] == "low_var_kl"


def test_raw_and_normalised_prices_need_sigma_and_say_how_to_get_it(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", PAID)
    with pytest.raises(SpecError) as caught:
        convert(found, "openrlhf")
    for words in (
        "--sigma: --algo.kl.init_coef",
        "algorithm.kl_ctrl.kl_coef of verl",
        "reward_std",
    ):
        assert words in str(caught.value)
    there = convert(found, "openrlhf", sigma=0.5)
    assert there.values["--algo.kl.init_coef"] == pytest.approx(0.4)  # kl-reference §3.4
    back = convert(read(tmp_path, "openrlhf", there.text), "verl", sigma=0.5)
    assert back.values["algorithm.kl_ctrl.kl_coef"] == pytest.approx(0.2)


def test_what_stays_in_its_own_unit_needs_no_sigma(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", OPENRLHF_NEW)
    assert convert(found, "openrlhf").values["--algo.kl.init_coef"] == 0.02
    assert convert(read(tmp_path, "verl", PAID), "verl").values["algorithm.kl_ctrl.kl_coef"] == 0.2


def test_o8_the_horizon_keeps_its_gain_with_another_batch(tmp_path: Path) -> None:
    text = "python3 -m openrlhf.cli.train_ppo_ray --algo.kl.target 0.25 --algo.kl.horizon 640 "
    text += "--rollout.batch_size 64 --train.batch_size 64 --rollout.max_new_tokens 24\n"
    found = read(tmp_path, "openrlhf", text)
    there = convert(found, "verl", batch=8192)
    assert there.values["algorithm.kl_ctrl.horizon"] == 81920
    assert there.values["algorithm.kl_ctrl.target_kl"] == 0.25
    assert there.values["data.train_batch_size"] == 8192  # one completion a prompt, as in the file


def test_what_a_framework_cannot_do_is_refused_in_the_files_words(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", VERL_GRPO, name="run.sh")
    with pytest.raises(SpecError, match=r"use --to-version 0.6.0, or a configuration with"):
        convert(found, "nemo-rl")
    assert convert(found, "nemo-rl", "0.6.0").values["loss_fn.reference_policy_kl_type"] == "k3"
    with pytest.raises(SpecError, match="--to-version: the keys of trl before"):
        convert(found, "trl", "0.1.0")


def test_the_change_between_two_releases_is_seen(tmp_path: Path) -> None:
    old = read(tmp_path, "nemo-rl", NEMO, "0.6.0")
    with pytest.raises(SpecError, match="forward-KL gradient"):
        convert(old, "nemo-rl", "0.7.0")
    new = convert(read(tmp_path, "nemo-rl", NEMO, "0.7.0"), "nemo-rl", "0.6.0")
    assert new.values["loss_fn.reference_policy_kl_type"] == "k2"


def test_remarks_list_unknown_keys_and_group_the_many(tmp_path: Path) -> None:
    extra = " ".join(f"trainer.more.key{num}=1" for num in range(40))
    text = VERL_GRPO.replace("$@", f"{extra} algorithm.nonsense=1")
    (unknown, unread) = remarks(read(tmp_path, "verl", text, name="run.sh"))[1:]
    assert unknown == "verl 0.9.0 has no such key, so it was not read: algorithm.nonsense"
    assert unread.endswith("trainer.nnodes, trainer.more.* (40 keys)")


def test_json_has_every_unit_and_none_where_it_is_not_known(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", VERL_GRPO, name="run.sh")
    facts = as_plain(found, Asked("json"))
    assert facts["converted"]["advantage_units_per_nat"] == 0.001
    assert facts["converted"]["raw_reward_per_nat_of_sequence_kl"] is None
    assert facts["converted"]["mean_tokens"] is None
    assert facts["trainer"]["steps"] is None
    assert "guards" not in facts
    assert facts["read"]["keys_not_carried_over"] == ["trainer.nnodes"]
    known = as_plain(found, Asked("json", sigma=0.5, sizes=Sizes(mean_tokens=24)))
    assert known["converted"]["raw_reward_per_nat_of_sequence_kl"] == pytest.approx(0.0005)
    json.dumps(known, allow_nan=False)


def test_another_framework_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--from: must be one of trl, verl, openrlhf, nemo-rl"):
        read_config("trlx", put(tmp_path, "a.yaml", "a: 1\n"))

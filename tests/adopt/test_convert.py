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


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("verl", VERL_GRPO.replace("coef=0.001", "coef=-1")),
        ("verl", PAID.replace("0.2", "-0.2")),
        ("trl", TRL.replace("0.04", "-0.5")),
        ("trl", "RLOOConfig(beta=-0.5)\n"),
        ("openrlhf", OPENRLHF_NEW.replace("0.02", "-0.2")),
        ("nemo-rl", NEMO.replace("0.02", "-0.3")),
    ],
)
def test_a_negative_price_is_refused_by_its_key(framework: str, text: str, tmp_path: Path) -> None:
    name = "run.sh" if framework == "verl" and "python3" in text else ""
    with pytest.raises(SpecError, match=r"(coef|beta|penalty) must be 0 or above.*\(got -"):
        read(tmp_path, framework, text, name=name)
    with pytest.raises(SpecError, match="beta must be 0 or above"):
        read(tmp_path, "trl", "beta: -0.5\nnum_generations: 8\n", name="a.yaml")


def test_a_group_too_small_is_named_by_the_files_key_where_no_flag_gave_it(tmp_path: Path) -> None:
    text = VERL_GRPO.replace("actor_rollout_ref.rollout.n=8", "")
    found = read(tmp_path, "verl", text, name="run.sh")
    with pytest.raises(SpecError) as caught:
        convert(found, "trl")
    assert f"{tmp_path / 'run.sh'}: actor_rollout_ref.rollout.n (default of verl 0.9.0)" in str(
        caught.value
    )
    assert convert(found, "trl", group=8).values["num_generations"] == 8
    with pytest.raises(SpecError, match=r"^--group: at least 2"):
        convert(found, "trl", group=1)


def test_a_target_per_sequence_is_asked_about(tmp_path: Path) -> None:
    text = PAID.replace("kl_coef: 0.2", "kl_coef: 0.2, type: adaptive, target_kl: 6")
    lines = remarks(read(tmp_path, "verl", text))
    assert any("did you mean 6 / your mean completion length" in line for line in lines)
    plain = remarks(read(tmp_path, "verl", text.replace("6}", "0.1}")))
    assert not any("did you mean" in line for line in plain)


def test_a_step_of_single_completions_keeps_its_shape_in_json(tmp_path: Path) -> None:
    text = "algorithm: {adv_estimator: gae}\ndata: {train_batch_size: 512}\n"
    facts = as_plain(read(tmp_path, "verl", text), Asked("json"))
    assert (facts["trainer"]["prompts"], facts["trainer"]["group_size"]) == (512, 1)


OPEN = VERL_GRPO.replace("optim.lr=1e-6", "optim.lr=$LR")


def test_a_key_that_is_set_to_what_is_not_known_is_kept_out(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", OPEN, name="run.sh")
    there = convert(found, "trl")
    assert "learning_rate" not in there.values
    assert "learning_rate=" not in there.text
    assert (
        "unknown: your file sets it (actor_rollout_ref.actor.optim.lr is $LR); kept out of this one: learning_rate"
        in there.warnings
    )
    assert sum("$LR" in line for line in there.warnings) == 1
    assert any("$LR, no plain value" in line for line in remarks(found))
    facts = as_plain(found, Asked("json"))
    assert facts["trainer"]["learning_rate"] is None
    assert facts["setting"]["learning_rate"] is None
    assert "actor_rollout_ref.actor.optim.lr" not in facts["read"]["left_to_defaults"]


def test_sizes_that_are_not_known_are_kept_out_and_a_flag_settles_them(tmp_path: Path) -> None:
    text = VERL_GRPO.replace("rollout.n=8", "rollout.n=$N").replace(
        "batch_size=64", "batch_size=$B"
    )
    found = read(tmp_path, "verl", text, name="run.sh")
    there = convert(found, "verl").values
    for name in ("rollout.n", "actor.ppo_mini_batch_size"):
        assert f"actor_rollout_ref.{name}" not in there
    assert "data.train_batch_size" not in there
    assert there["actor_rollout_ref.actor.kl_loss_coef"] == 0.001
    settled = convert(found, "verl", batch=256, group=8).values
    assert settled["actor_rollout_ref.rollout.n"] == 8
    assert settled["data.train_batch_size"] == 32
    facts = as_plain(found, Asked("json"))
    assert (facts["trainer"]["prompts"], facts["trainer"]["group_size"]) == (None, None)


def test_what_the_kls_own_numbers_depend_on_has_to_be_known(tmp_path: Path) -> None:
    text = VERL_GRPO.replace("rollout.n=8", "rollout.n=$N").replace("low_var_kl", "mse")
    text = text.replace("trainer.nnodes=1", "algorithm.norm_adv_by_std_in_grpo=False")
    found = read(tmp_path, "verl", text, name="run.sh")
    with pytest.raises(
        SpecError, match=r"run.sh: actor_rollout_ref.rollout.n is \$N, no plain.*beta"
    ):
        convert(found, "trl", "1.16.0", group=8)
    with pytest.raises(SpecError, match=r"kl_loss_coef is \$KL"):
        read(tmp_path, "verl", VERL_GRPO.replace("0.001", "$KL"), name="run.sh")

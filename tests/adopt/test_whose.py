from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from adopt_case import VERL_GRPO, put

from kltune.adopt.given import read_given
from kltune.errors import SpecError

SFT = "deepspeed --module openrlhf.cli.train_sft --max_len 2048 --train_batch_size 256 --pretrain a --lr 1e-6\n"
NEW_RM = "deepspeed --module openrlhf.cli.train_rm --data.max_len 8192 --train.batch_size 256\n"


@pytest.mark.parametrize(
    ("framework", "name", "text"),
    [
        ("openrlhf", "a.sh", SFT),
        ("openrlhf", "a.sh", NEW_RM),
        ("openrlhf", "a.sh", "docker run --gpus all --rm -it image bash\n"),
        ("openrlhf", "a.sh", f"# not openrlhf.cli.train_ppo_ray\n{SFT}"),
        ("openrlhf", "a.yaml", "foo: 1\n"),
        ("verl", "a.yaml", "foo: 1\n"),
        ("verl", "a.yaml", "data: {train_batch_size: 8}\noptim: {lr: 1}\n"),
        ("verl", "a.sh", "python -m verl.trainer.main_generation actor_rollout_ref.rollout.n=1\n"),
        ("nemo-rl", "a.yaml", "sft: {max_num_epochs: 1}\npolicy: {model_name: a}\n"),
        ("trl", "a.yaml", "learning_rate: 1.0e-5\nmax_steps: 8\n"),
        ("trl", "a.json", '{"foo": 1}'),
    ],
)
def test_a_file_of_another_kind_is_refused(
    framework: str, name: str, text: str, tmp_path: Path
) -> None:
    path = put(tmp_path, name, text)
    with pytest.raises(SpecError, match=r"no (key|flag) .* was found in it") as caught:
        read_given(framework, path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("framework", "name", "text"),
    [
        ("openrlhf", "a.sh", "python3 -m openrlhf.cli.train_ppo_ray --pretrain a\n"),
        ("openrlhf", "a.sh", "bash more.sh --init_kl_coef 0.1\n"),
        ("openrlhf", "a.yaml", "algo.kl.init_coef: 0.1\n"),
        ("verl", "a.sh", "python3 -m verl.trainer.main_ppo trainer.nnodes=1\n"),
        ("nemo-rl", "a.yaml", "defaults: grpo_math_1B.yaml\npolicy: {model_name: a}\n"),
        ("trl", "a.py", "GRPOConfig()\n"),
        ("trl", "a.yaml", "num_generations: 8\n"),
    ],
)
def test_one_that_runs_rl_or_says_something_of_it_is_read(
    framework: str, name: str, text: str, tmp_path: Path
) -> None:
    read_given(framework, put(tmp_path, name, text))


def test_a_value_where_a_section_belongs_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "a.yaml", "algorithm: grpo\nactor_rollout_ref.actor.kl_loss_coef: 1\n")
    with pytest.raises(
        SpecError, match=r"algorithm: must be a section with keys such as algorithm\."
    ):
        read_given("verl", path)
    with pytest.raises(SpecError, match=r"loss_fn: must be a section"):
        read_given(
            "nemo-rl", put(tmp_path, "b.yaml", "loss_fn: 0.1\ngrpo: {num_prompts_per_step: 8}\n")
        )


YAMLS = {
    "trl": "beta: 0.04\nnum_generations: 8\nloss_type: grpo\n",
    "verl": "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {use_kl_loss: true, kl_loss_coef: 0.001}}\n",
    "openrlhf": "algo.kl.init_coef: 0.01\nrollout.n_samples_per_prompt: 8\nnote: grpo\n",
    "nemo-rl": "grpo: {num_generations_per_prompt: 8}\nloss_fn: {reference_policy_kl_penalty: 0.01}\n",
}
SHELLS = {
    "trl": "accelerate launch grpo.py --beta 0.04 --num_generations 8\n",
    "verl": VERL_GRPO,
    "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray --init_kl_coef 0.01 --n_samples_per_prompt 8 --x grpo\n",
    "nemo-rl": "uv run examples/run_grpo_math.py grpo.num_generations_per_prompt=8 loss_fn.reference_policy_kl_penalty=0\n",
}


@pytest.mark.parametrize("ending", ["yaml", "sh"])
@pytest.mark.parametrize(("said", "whose"), [*itertools.permutations(YAMLS, 2)])
def test_a_file_of_another_framework_is_refused_by_its_name(
    said: str, whose: str, ending: str, tmp_path: Path
) -> None:
    text = (YAMLS if ending == "yaml" else SHELLS)[whose]
    path = put(tmp_path, f"a.{ending}", text)
    with pytest.raises(SpecError) as caught:
        read_given(said, path)
    assert f"these are {whose}'s keys (" in str(caught.value)
    assert str(caught.value).endswith(f"not {said}'s: --from {whose}")
    read_given(whose, path)

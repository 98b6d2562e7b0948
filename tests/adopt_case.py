"""Texts of other trainers' configurations in, readings and conversions out."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

from export_case import SIGMA_R, STD_R, target
from ruamel.yaml import YAML

from kltune.adopt.convert import Asked, converted, read_config
from kltune.adopt.given import Given
from kltune.adopt.keys import Keys
from kltune.adopt.reading import Reading
from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.releases import key_list
from kltune.export.setting import Winner
from kltune.export.target import Sizes
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl

ENDING = {"trl": ".py", "verl": ".yaml", "openrlhf": ".sh", "nemo-rl": ".yaml"}
EXPORTERS = {
    "trl": export_trl,
    "verl": export_verl,
    "openrlhf": export_openrlhf,
    "nemo-rl": export_nemo_rl,
}

VERL_GRPO = """\
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=64 \\
    data.max_response_length=128 \\
    actor_rollout_ref.model.path=org/some-model \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \\
    actor_rollout_ref.rollout.n=8 \\
    trainer.nnodes=1 $@
"""

OPENRLHF_OLD = """\
python3 -m openrlhf.cli.train_ppo_ray --advantage_estimator group_norm --init_kl_coef 0.02 \\
   --rollout_batch_size 32 --n_samples_per_prompt 4 --train_batch_size 128 --generate_max_len 64
"""

OPENRLHF_NEW = """\
ARGS=(
   --algo.advantage.estimator group_norm
   # --algo.kl.init_coef 9
   --algo.kl.init_coef 0.02
   --rollout.batch_size 32
   --rollout.n_samples_per_prompt 4
   --train.batch_size 128
   --rollout.max_new_tokens 64
)
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray "${ARGS[@]}"
"""

NEMO = """\
defaults: grpo_math_1B.yaml
grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 8, use_leave_one_out_baseline: false}
loss_fn: {reference_policy_kl_penalty: 0.02}
policy: {train_global_batch_size: 64}
"""

TRL = """\
from trl import GRPOConfig
KL = 0.04
config = GRPOConfig(beta=KL, num_generations=8, per_device_train_batch_size=16)
"""


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(
    folder: Path, framework: str, text: str, version: str | None = None, name: str = ""
) -> Reading:
    path = put(folder, name or f"config{ENDING[framework]}", text)
    return read_config(framework, path, version)


def keys(framework: str, version: str, prefix: str = "", **values: Any) -> Keys:
    """A dot of a key may be written as two underscores."""
    given = Given("config", {name.replace("__", "."): v for name, v in values.items()})
    return Keys(given, key_list(framework, version)[0], prefix)


def refusal(folder: Path, framework: str, text: str, version: str | None = None) -> str:
    try:
        found = read(folder, framework, text, version)
    except SpecError as error:
        return str(error)
    raise AssertionError(f"not refused: {found}")


def exported(winner: Winner, framework: str, version: str) -> Exported | None:
    """None: the framework can't run it."""
    try:
        return EXPORTERS[framework](winner, target(winner, framework, version))
    except SpecError:
        return None


def live(found: Exported) -> dict[str, Any]:
    """Keys and values of a file's text without its comments, read by nothing of kltune's."""
    if found.framework == "trl":
        (call,) = [n for n in ast.walk(ast.parse(found.text)) if isinstance(n, ast.Call)]
        assert ast.unparse(call.func) == found.builder
        values = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        assert values.pop("output_dir") == "output"
        return values
    if found.framework == "openrlhf":
        bare = "\n".join(line for line in found.text.split("\n") if not line.startswith("#"))
        words = shlex.split(bare, comments=True)
        assert words[0] == "settings=("
        end = words.index(")")
        assert words[end + 1 :] == [
            *["python3", "-m", "openrlhf.cli.train_ppo_ray"],
            "${settings[@]}",
            "$@",
        ]
        flags: dict[str, Any] = {}
        for word in words[1:end]:
            if word.startswith("--"):
                flags[word] = []
            else:
                flags[list(flags)[-1]].append(word)
        return {flag: _flag_value(given) for flag, given in flags.items()}
    tree = YAML(typ="safe", pure=True).load(found.text)
    if found.framework == "verl" and "hydra" in tree:
        assert tree.pop("hydra") == {"searchpath": ["pkg://verl.trainer.config"]}
        assert tree.pop("defaults") == ["ppo_trainer", "_self_"]
        assert "# python3 -m verl.trainer.main_ppo \\\n" in found.text
    return _flat(tree)


def _flag_value(given: list[str]) -> Any:
    """As the list of an export has it."""
    plain = [_number(one) for one in given]
    return True if not plain else plain[0] if len(plain) == 1 else tuple(plain)


def _number(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def _flag_value(given: list[str]) -> Any:
    """As the list of an export has it."""
    plain = [_number(one) for one in given]
    return True if not plain else plain[0] if len(plain) == 1 else tuple(plain)


def _number(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def sigma_of(algorithm: str) -> float:
    """What this algorithm divides by in tests/export_case.py."""
    return SIGMA_R if algorithm == "grpo" else STD_R


def convert(
    found: Reading, to: str, version: str | None = None, sigma: float | None = None, **sizes: Any
) -> Exported:
    return converted(found, Asked(to, version, sigma, Sizes(**sizes)))

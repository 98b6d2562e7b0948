"""Git mirrors of other trainers in, the committed lists of their keys and defaults out: `kltune/export/keys`.

``python tests/bench/framework_keys.py MIRRORS`` with a folder that holds clones named as below;
TRL's newest version is read from the installed package.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

KEYS = Path(__file__).parents[2] / "kltune" / "export" / "keys"
INHERITED = (
    "output_dir",
    "learning_rate",
    "lr_scheduler_type",
    "weight_decay",
    "max_grad_norm",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)
"""What the export uses of transformers.TrainingArguments."""
VERL_PARTS = (
    "algorithm.",
    "critic.",
    "data.train_batch_size",
    "data.max_",
    "actor_rollout_ref.model.lora",
    "actor_rollout_ref.model.target_modules",
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.rollout.",
    "trainer.total_",
    "trainer.use_legacy_worker_impl",
)
VERL_DETAIL = (
    "fsdp_config",
    "engine",
    "profiler",
    "checkpoint",
    "megatron",
    "multi_turn",
    "agent",
    "trace",
    "server",
    "prometheus",
    "val_kwargs",
    "mtp",
    "torchtitan",
    "veomni",
    "quant",
    "skip",
    "router_replay",
    "override_transformer_config",
)
"""Sections without anything that the export says."""


@dataclass(frozen=True)
class Source:
    """One framework's clone and the tags that are read."""

    framework: str
    clone: str
    tags: tuple[str, ...]
    read: Callable[[Repository, str], list[dict[str, Any]]]


@dataclass(frozen=True)
class Repository:
    """A clone that is only read."""

    path: Path

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def show(self, tag: str, path: str) -> str:
        return self.git("show", f"{tag}:{path}")

    def has(self, tag: str, path: str) -> bool:
        return bool(self.git("ls-tree", "--name-only", tag, path).strip())


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a tree of mappings, by dotted key."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def plain(value: Any) -> Any:
    """A JSON value; what is none of them is given as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)


def listed(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": path, "keys": {name: plain(keys[name]) for name in sorted(keys)}}


def class_fields(text: str, name: str) -> dict[str, Any]:
    """The annotated fields of a class and their defaults; None where the class gives none."""
    found: dict[str, Any] = {}
    for node in ast.parse(text).body:
        if not (isinstance(node, ast.ClassDef) and node.name == name):
            continue
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found[line.target.id] = default_of(line.value)
    return found


def default_of(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Call):
        given = [k.value for k in node.keywords if k.arg in ("default", "default_factory")]
        return default_of(given[0]) if given else None
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def read_trl(repository: Repository, tag: str) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = []
    for path, name in (
        ("trl/trainer/grpo_config.py", "GRPOConfig"),
        ("trl/trainer/rloo_config.py", "RLOOConfig"),
    ):
        fields = class_fields(repository.show(tag, path), name)
        files.append(listed(path, {f"{name}.{key}": value for key, value in fields.items()}))
    return [*files, inherited()]


def inherited() -> dict[str, Any]:
    from transformers import TrainingArguments

    fields = TrainingArguments.__dataclass_fields__
    version = importlib.metadata.version("transformers")
    return listed(
        f"transformers.TrainingArguments ({version})",
        {
            f"{name}.{key}": plain(fields[key].default)
            for name in ("GRPOConfig", "RLOOConfig")
            for key in INHERITED
        },
    )


def read_installed_trl() -> list[dict[str, Any]]:
    import trl

    package = Path(str(trl.__file__)).parent
    files: list[dict[str, Any]] = []
    for stem, name in (("grpo_config", "GRPOConfig"), ("rloo_config", "RLOOConfig")):
        fields = class_fields((package / "trainer" / f"{stem}.py").read_text("utf-8"), name)
        keys = {f"{name}.{key}": value for key, value in fields.items()}
        files.append(listed(f"trl/trainer/{stem}.py", keys))
    base = package / "trainer" / "base_config.py"
    if base.is_file():
        shared = class_fields(base.read_text("utf-8"), "_BaseConfig")
        keys = {
            f"{name}.{k}": v for name in ("GRPOConfig", "RLOOConfig") for k, v in shared.items()
        }
        files.append(listed("trl/trainer/base_config.py", keys))
    return [*files, inherited()]


def read_verl(repository: Repository, tag: str) -> list[dict[str, Any]]:
    folder = "verl/trainer/config"
    path = f"{folder}/_generated_ppo_trainer.yaml"
    if not repository.has(tag, path):
        path = f"{folder}/ppo_trainer.yaml"
    tree = YAML(typ="safe").load(repository.show(tag, path))
    keys = {
        key: value
        for key, value in flat(tree)
        if key.startswith(VERL_PARTS)
        and not any(part.startswith(VERL_DETAIL) for part in key.split("."))
    }
    return [listed(path, keys)]


def read_openrlhf(repository: Repository, tag: str) -> list[dict[str, Any]]:
    path = "openrlhf/cli/train_ppo_ray.py"
    keys: dict[str, Any] = {}
    for node in ast.walk(ast.parse(repository.show(tag, path))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument" or not node.args:
            continue
        options = {k.arg: default_of(k.value) for k in node.keywords if k.arg}
        default = options.get("default", False if "action" in options else None)
        for flag in flags_of(node.args[0]):
            keys[flag] = default
            if isinstance(options.get("choices"), list):
                keys[f"{flag} choices"] = options["choices"]
    return [listed(path, keys)]


def flags_of(node: ast.expr) -> list[str]:
    """The flag's text; one for actor and one for critic where it is made by a prefix."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    text = ast.unparse(node).removeprefix("f").strip("'\"")
    return [text.replace("{prefix}", who) for who in ("actor", "critic")]


def read_nemo(repository: Repository, tag: str) -> list[dict[str, Any]]:
    path = "examples/configs/grpo_math_1B.yaml"
    tree = YAML(typ="safe").load(repository.show(tag, path))
    wanted = ("grpo.", "loss_fn.", "policy.train_", "policy.max_", "policy.optimizer.")
    wanted += ("policy.generation.", "policy.dtensor_cfg.lora", "policy.scheduler")
    detail = ("vllm_", "colocated", "sglang", "mcore", "trtllm", "megatron")
    keys = {
        key: value
        for key, value in flat(tree)
        if key.startswith(wanted) and not any(p.startswith(detail) for p in key.split("."))
    }
    loss = "nemo_rl/algorithms/loss/loss_functions.py"
    if not repository.has(tag, loss):
        loss = "nemo_rl/algorithms/loss_functions.py"
    fields = class_fields(repository.show(tag, loss), "ClippedPGLossConfig")
    more = {f"loss_fn.{k}": v for k, v in fields.items() if f"loss_fn.{k}" not in keys}
    return [listed(path, keys), listed(loss, more)]


SOURCES = (
    Source(
        "trl",
        "huggingface+trl/repo",
        (
            "v0.17.0",
            "v0.18.2",
            "v0.19.1",
            "v0.21.0",
            "v0.22.2",
            "v0.25.1",
            "v0.26.2",
            "v0.28.0",
            "v0.29.1",
            "v1.0.0",
            "v1.8.0",
            "v1.9.0",
        ),
        read_trl,
    ),
    Source(
        "verl",
        "verl-project+verl/repo",
        ("v0.3.0.post1", "v0.4.0", "v0.5.0", "v0.6.0", "v0.7.0", "v0.7.1", "v0.8.0", "v0.9.0"),
        read_verl,
    ),
    Source(
        "openrlhf",
        "OpenRLHF+OpenRLHF/repo",
        ("v0.8.3", "v0.9.0", "v0.9.10", "v0.10.0", "v0.10.2", "v0.10.3", "v0.10.4", "v0.11.0"),
        read_openrlhf,
    ),
    Source(
        "nemo-rl",
        "NVIDIA-NeMo+RL/repo",
        ("v0.3.1", "v0.4.0", "v0.5.0", "v0.6.0", "v0.7.0"),
        read_nemo,
    ),
)


def write(framework: str, version: str, source: Mapping[str, Any], files: list[Any]) -> None:
    facts = {"framework": framework, "version": version, "source": source, "files": files}
    path = KEYS / f"{framework}-{version}.json"
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.name}: {sum(len(file['keys']) for file in files)} keys")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mirrors", type=Path)
    mirrors: Path = parser.parse_args().mirrors
    for source in SOURCES:
        repository = Repository(mirrors / source.clone)
        for tag in source.tags:
            commit, date = repository.git("log", "-1", "--format=%H %cs", tag).split()
            facts = {"tag": tag, "commit": commit, "date": date}
            version = tag.removeprefix("v").removesuffix(".post1")
            write(source.framework, version, facts, source.read(repository, tag))
    version = importlib.metadata.version("trl")
    write("trl", version, {"wheel": f"trl {version} of PyPI"}, read_installed_trl())


if __name__ == "__main__":
    main()

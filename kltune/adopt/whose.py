"""A file's keys and text in; a refusal where they are not those of an RL run of the framework."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kltune.errors import SpecError
from kltune.export.releases import key_list, listed_versions

if TYPE_CHECKING:
    from kltune.adopt.given import Given

ENTRY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trl": r"\bgrpo|\brloo|grpo\w*\.py|rloo\w*\.py",
        "verl": r"\bmain_ppo|\bmain_dapo",
        "openrlhf": r"\btrain_(?:ppo|grpo)",
        "nemo-rl": r"\brun_\w*grpo",
    }
)
"""The programs that run RL, as a pattern."""

_TELLING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "verl": r"(?:algorithm|actor_rollout_ref\.actor|critic)\..+",
        "nemo-rl": r"(?:loss_fn|grpo)\..+",
        "openrlhf": r"--(?:algo|rollout|critic)\..+|--\w*kl_\w+|--advantage_estimator|--n_samples_per_prompt|--rollout_\w+"
        r"|--eps_clip\w*|--use_kl_loss|--reward_clip_range|--gamma|--lambd",
        "trl": r"beta|epsilon\w*|num_generations|loss_type|scale_rewards|num_iterations|max_completion_length"
        r"|use_bias_correction_kl|importance_sampling_level|normalize_advantages|reward_clip_range|sync_ref_model"
        r"|generation_batch_size|steps_per_generation",
    }
)
"""Keys that no other kind of training of the framework has."""

_EXAMPLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trl": "no key of GRPOConfig or RLOOConfig",
        "verl": "no key such as algorithm.adv_estimator=grpo",
        "openrlhf": "no flag such as --algo.kl.init_coef",
        "nemo-rl": "no key such as loss_fn.reference_policy_kl_penalty",
    }
)


def check_is_of(
    framework: str,
    where: str,
    given: Given,
    text: str,
    seen_by: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> None:
    """Everything a file leaves open is its release's default, so one of another kind would be read too.

    ``seen_by``: another framework, and the keys that the file would have as one of its own.

    Raises:
        SpecError: it holds no key of the framework's RL and starts none of its RL programs, has more keys of another
            framework's, or has a value where a section belongs.
    """
    if given.builder:
        return
    names = [*given.values, *given.unreadable]
    told = _telling(framework, names)
    others = {other: _telling(other, seen) for other, seen in seen_by.items()}
    whose = max(others, key=lambda other: len(others[other]), default=framework)
    if whose != framework and len(others[whose]) > len(told):
        raise SpecError(
            f"{where}: these are {whose}'s keys ({', '.join(others[whose][:3])}), not {framework}'s: --from {whose}"
        )
    known = _known(framework)
    for name, value in given.values.items():
        inside = (
            sorted(key for key in known if key.startswith(f"{name}.") and "._" not in key)
            if name
            else []
        )
        if inside and value is not None and value != {}:
            raise SpecError(
                f"{where}: {name}: must be a section with keys such as {inside[0]} (got {value!r})"
            )
    if told or (names and _starts(framework, given, text)):
        return
    runs = re.search(r"\btrain_\w+", text) if framework == "openrlhf" else None
    other = f"; it runs {runs[0]}, which is no RL" if runs else ""
    raise SpecError(f"{where}: {_EXAMPLE[framework]} was found in it{other}")


def _telling(framework: str, names: Collection[str]) -> list[str]:
    """Those that are keys of the framework's RL and of no other kind of training."""
    likely = [name for name in names if re.fullmatch(_TELLING[framework], name)]
    known = _known(framework) if likely else ()
    return [name for name in likely if name in known]


def _starts(framework: str, given: Given, text: str) -> bool:
    """Whether it starts an RL program, or is laid over the configuration of one."""
    code = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    return re.search(ENTRY[framework], code) is not None or any(
        note.startswith("defaults:") and re.search(r"grpo|ppo", note) for note in given.notes
    )


def _known(framework: str) -> Collection[str]:
    """Keys of any release, without TRL's classes."""
    lists = [key_list(framework, version)[0] for version in listed_versions(framework)]
    names = {name for one in lists for name in one.defaults if not name.endswith(" choices")}
    if framework != "trl":
        return names
    return {name.rpartition(".")[2] for name in names if name.startswith(("GRPO", "RLOO"))}

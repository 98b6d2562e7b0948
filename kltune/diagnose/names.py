"""Names of metrics in, what they are out: which framework logs them, which quantity each is, in which unit.

The tables are kltune.diagnose.known_kl and known_others; kl-reference.md §4 is their source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from kltune.diagnose.known import Known
from kltune.diagnose.known_kl import KL
from kltune.diagnose.known_others import OTHERS
from kltune.diagnose.known_unknown import by_meaning

Test = Callable[[frozenset[str]], bool]

_PREFIX: Final = "train/"


def _any_of(*names: str) -> Test:
    return lambda logged: not logged.isdisjoint(names)


def _all_of(*names: str) -> Test:
    return lambda logged: logged.issuperset(names)


def _starts(prefix: str) -> Test:
    return lambda logged: any(name.startswith(prefix) for name in logged)


# The first that holds; names are those without a leading train/.
_SIGNS: Final[tuple[tuple[str, Test], ...]] = (
    ("kltune", _any_of("kl/exact_token", "kl/exact_seq", "ctrl/beta")),
    ("open-instruct", _any_of("objective/kl0_avg", "objective/kl1_avg", "objective/kl2_avg")),
    ("open-instruct", _any_of("val/sequence_lengths", "debug/vllm_local_reverse_kl")),
    (
        "trl-legacy",
        _any_of(
            "ppo/policy/approxkl",
            "ppo/policy/policykl",
            "ppo/mean_non_score_reward",
            "ppo/mean_scores",
            "objective/kl_dist",
        ),
    ),
    ("trlx", _any_of("policy/sqrt_kl", "policy/kl_per_token", "kl_ctl_value")),
    ("trl-online-dpo", _all_of("objective/kl", "val/contain_eos_token")),
    ("trl-ppo", _any_of("policy/approxkl_avg", "objective/rlhf_reward")),
    (
        "verl",
        _any_of(
            "actor/ppo_kl",
            "actor/pg_loss",
            "actor/kl_loss",
            "actor/reward_kl_penalty",
            "critic/score/mean",
            "critic/rewards/mean",
            "response_length/clip_ratio",
        ),
    ),
    ("verl", _starts("rollout_corr/")),
    (
        "nemo-rl",
        _any_of(
            "kl_penalty", "gen_kl_error", "token_mult_prob_error", "mean_gen_tokens_per_sample"
        ),
    ),
    ("openrlhf", _any_of("actor_lr", "ppo_clip_ratio", "vllm_kl", "logprobs_diff")),
    ("openrlhf", _all_of("kl", "response_length", "return")),
    (
        "trl",
        _any_of(
            "completions/mean_length",
            "completions/clipped_ratio",
            "frac_reward_zero_std",
            "completion_length",
        ),
    ),
    ("trl", lambda logged: any(re.fullmatch(r"rewards/.+/mean", name) for name in logged)),
)

TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trl-legacy": "TRL's PPO up to 0.11",
        "trl-ppo": "TRL's experimental PPO",
        "trl-online-dpo": "TRL's OnlineDPO",
        "trl": "TRL",
        "verl": "verl",
        "openrlhf": "OpenRLHF",
        "nemo-rl": "NeMo-RL",
        "open-instruct": "open-instruct",
        "trlx": "trlX",
        "kltune": "kltune",
    }
)
"""What people call each."""


def framework_of(names: Iterable[str]) -> str:
    """Tell which trainer logs such names; ``unknown`` where none of its own is among them."""
    logged = frozenset(bare(name) for name in names)
    return next((name for name, test in _SIGNS if test(logged)), "unknown")


def family(framework: str) -> str:
    """The framework as `RunLog` names it: TRL's several trainers are one."""
    return "trl" if framework.startswith("trl-") else framework


def bare(name: str) -> str:
    """Take off the ``train/`` that TensorBoard, W&B and MLflow logs of many trainers put before a name."""
    return name.removeprefix(_PREFIX)


def known_names(names: Iterable[str], framework: str) -> list[Known]:
    """Say what each of ``names`` is, the best source of a quantity first; ``Known.name`` is the name as logged.

    Names that nothing is known of are not in the list.
    """
    logged = sorted(names)
    if framework == "unknown":
        return [known for name in logged if (known := by_meaning(name)) is not None]
    found: list[Known] = []
    for known in (*KL.get(framework, ()), *OTHERS.get(framework, ())):
        # A pattern is for what no earlier line named.
        before = {one.name for one in found} if "*" in known.name else set[str]()
        matching = [name for name in logged if name not in before and _is(known.name, name)]
        found += [replace(known, name=name) for name in matching]
    taken = {known.name for known in found}
    # What nobody calls anything but an update KL is one here too.
    rest = [known for name in logged if name not in taken and (known := by_meaning(name))]
    return found + [known for known in rest if known.is_other_distance]


def _is(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(bare(name), pattern)

"""A name of no framework that is known in, what it most likely is out; a KL's unit stays open unless the name says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kltune.diagnose.known import SEQ, TOKEN, UNDECIDED, Known
from kltune.symptoms.curve import Quantity

_UPDATE: Final = re.compile(
    r"(?:ppo|approx|policy|update)_?kl(?:_avg|_mean|_token|/mean)?|policykl|approxkl(?:_avg)?"
)
_SAMPLER: Final = re.compile(r"(?:vllm|sampler|rollout|mismatch|gen)_?kl(?:_error|_token|_mean)?")
_TIMES_BETA: Final = re.compile(r"kl_?(?:loss|penalty|cost|term|reward)|(?:loss|penalty)_kl")
_PLAIN: Final = re.compile(
    r"(?:(?:mean|avg|ref|reference|exact|reverse|total)_)*kl(?:_?(?:div|divergence|to_ref|ref|reference|mean|avg|policy_ref|policy_base))*"
)
_WITH_UNIT: Final = re.compile(
    r"(?:ref_)?kl_(?:per_)?(?P<unit>token|seq|sequence|completion|response)(?:_mean|_avg)?"
)
_EVALUATION: Final = re.compile(r"(?:eval|val|valid|validation|test)[/_]")

_BY_LAST: Final[Mapping[str, tuple[Quantity, str]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("reward", "rewards", "mean_reward", "reward_mean", "score", "scores", "proxy", "env_reward"),
            (Quantity.PROXY, "proxy reward"),
        ),
        **dict.fromkeys(("reward_std", "std_reward", "rewards_std", "proxy_std"), (Quantity.PROXY_STD, "proxy reward")),
        **dict.fromkeys(("gold", "gold_mean", "gold_score"), (Quantity.GOLD, "gold")),
        **dict.fromkeys(("beta", "kl_coef", "kl_coeff", "kl_beta"), (Quantity.BETA, "the run's own")),
        **dict.fromkeys(("target_kl", "kl_target"), (Quantity.TARGET, "the run's own")),
        **dict.fromkeys(("entropy", "policy_entropy", "entropy_mean"), (Quantity.ENTROPY, TOKEN)),
        **dict.fromkeys(
            ("response_length", "completion_length", "length", "mean_length", "gen_length", "response_len"),
            (Quantity.LENGTH, "tokens"),
        ),
        **dict.fromkeys(("truncated", "truncated_frac", "truncation_rate"), (Quantity.TRUNCATED, "share of completions")),
        **dict.fromkeys(("loss", "total_loss"), (Quantity.LOSS, "1")),
        **dict.fromkeys(("policy_loss", "pg_loss", "actor_loss"), (Quantity.LOSS_POLICY, "1")),
        **dict.fromkeys(("grad_norm", "gradient_norm"), (Quantity.GRAD_NORM, "1")),
        **dict.fromkeys(("lr", "learning_rate", "actor_lr"), (Quantity.LEARNING_RATE, "1")),
        **dict.fromkeys(("clipfrac", "clip_frac", "clip_fraction"), (Quantity.CLIP_FRAC, "share of tokens")),
        **dict.fromkeys(("explained_variance", "explained_var"), (Quantity.EXPLAINED_VARIANCE, "1")),
    }
)  # fmt: skip


def by_meaning(name: str) -> Known | None:
    """Say what a name most likely is; none where nothing speaks for anything.

    The KL of an unknown trainer has no unit until its size is looked at (kltune.diagnose.units).
    """
    lower = name.lower().strip()
    last = _last(lower)
    if _EVALUATION.match(lower) and "gold" not in lower:
        return None
    return _as_kl(name, lower, last) or _as_other(name, last)


def _as_kl(name: str, lower: str, last: str) -> Known | None:
    if lower == "objective/kl":
        return Known(
            name,
            Quantity.KL_SEQ,
            SEQ,
            "k1",
            "every framework that logs objective/kl sums over the completion",
        )
    if _UPDATE.fullmatch(last):
        return Known(
            name,
            Quantity.UPDATE_KL_TOKEN,
            TOKEN,
            "",
            "an update KL by its name, never a distance to the reference",
        )
    if _SAMPLER.fullmatch(last):
        return Known(
            name,
            Quantity.SAMPLER_KL_TOKEN,
            TOKEN,
            "",
            "generator against trainer by its name, never a distance to the reference",
        )
    if _TIMES_BETA.fullmatch(last) or lower.endswith(("loss/kl", "penalty/kl")):
        return Known(name, None, "", "", "a coefficient may be in it: no KL that can be trusted")
    if (match := _WITH_UNIT.fullmatch(last)) is not None:
        is_token = match["unit"] == "token"
        quantity, unit = (Quantity.KL_TOKEN, TOKEN) if is_token else (Quantity.KL_SEQ, SEQ)
        return Known(name, quantity, unit, "", "the unit is in the name")
    if _PLAIN.fullmatch(last):
        return Known(
            name,
            Quantity.KL_TOKEN,
            UNDECIDED,
            "",
            "a KL by its name",
            is_certain=False,
            zeros_are_missing=True,
        )
    return None


def _as_other(name: str, last: str) -> Known | None:
    found = _BY_LAST.get(last)
    if found is None:
        return None
    return Known(name, found[0], found[1], "", "by its name", is_certain=False)


def _last(lower: str) -> str:
    """The part of the name that says what it is: ``reward/mean`` is ``reward``, ``train/kl`` is ``kl``."""
    parts = [part for part in re.split(r"[/.:]", lower) if part]
    if len(parts) > 1 and parts[-1] in ("mean", "avg", "average"):
        parts.pop()
    if len(parts) > 1 and parts[-1] == "std":
        return f"{parts[-2]}_std"
    return parts[-1] if parts else ""

"""A configuration of one trainer in, the same setting as another's (or as JSON) out.

What a value depends on and nobody said (sigma, mean length) is found by trying: with two values of it the
same keys come out, or it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kltune.adopt.given import read_given
from kltune.adopt.keys import Keys, release_of
from kltune.adopt.nemo_rl import read_nemo_rl
from kltune.adopt.openrlhf import read_openrlhf
from kltune.adopt.reading import Reading
from kltune.adopt.trl import builder_of, read_trl
from kltune.adopt.unclear import is_same, moved_keys, others, without_unclear
from kltune.adopt.verl import read_verl
from kltune.adopt.wording import reworded, reworded_text
from kltune.errors import SpecError
from kltune.export.cautions import heading
from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.plain import plain
from kltune.export.releases import FRAMEWORKS
from kltune.export.setting import Winner
from kltune.export.target import Sizes, Target, make_target
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl

_EXPORTERS: Final[Mapping[str, Callable[[Winner, Target], Exported]]] = MappingProxyType(
    {
        "trl": export_trl,
        "verl": export_verl,
        "openrlhf": export_openrlhf,
        "nemo-rl": export_nemo_rl,
    }
)

_MANY: Final = 24
"""Keys listed one by one."""

_MOST_TOKEN_KL: Final = 1.0
"""Nats per token: above, a target was meant per sequence."""

_DEFAULTS: Final = "that file's or its release's default"
"""Where the values are from, as the heading has it."""

SIGMA_HELP: Final = (
    "--sigma is the standard deviation of the reward that the advantages are divided by, in raw reward, under the start "
    "policy: within a group of one prompt (GRPO), over all completions (REINFORCE++, PPO). A kltune study measures it "
    "(sigma_r in reference.json); your log has it as TRL's reward_std or OpenRLHF's group_reward_std of the first steps"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a conversion is told beside the file."""

    to: str
    version: str | None = None
    """Of the target; None: the newest on record."""
    sigma: float | None = None
    """What advantages are divided by, raw reward."""
    sizes: Sizes = field(default_factory=Sizes)
    """Of the target; None: as in the file."""


def read_config(framework: str, path: Path, version: str | None = None) -> Reading:
    """Read a trainer's configuration; nothing in it is run.

    Raises:
        SpecError: it can't be read, or sets what kltune has no words for.
    """
    if framework not in FRAMEWORKS:
        raise SpecError(f"--from: must be one of {', '.join(FRAMEWORKS)} (got {framework!r})")
    given = read_given(framework, path)
    listed, doubt = release_of(framework, version, given)
    builder = builder_of(given) if framework == "trl" else ""
    release = None if version is None else version.strip().removeprefix("v")
    keys = Keys(given, listed, f"{builder}." if builder else "", release)
    if doubt:
        keys.warnings.append(doubt)
    if framework == "trl":
        return read_trl(keys, builder)
    read = {"verl": read_verl, "openrlhf": read_openrlhf, "nemo-rl": read_nemo_rl}[framework]
    return read(keys)


def converted(found: Reading, asked: Asked) -> Exported:
    """As the target's configuration.

    Raises:
        SpecError: the target can't run the setting, or sigma or the mean length has to be known for it.
    """
    sigma = asked.sigma or 1.0
    mean = _mean(found, asked)
    try:
        result = _built(found, asked, sigma, mean)
        _check_known(found, asked, result, (sigma, mean))
        result, unknown = without_unclear(
            result, found, lambda one: _built(one, asked, sigma, mean)
        )
    except SpecError as error:
        raise SpecError(reworded_text(str(error), found)) from error
    winner = found.winner(sigma, mean)
    lines = heading(winner, _target(found, winner, asked, asked.to))
    if asked.sizes != Sizes():
        lines = tuple(line.replace(_DEFAULTS, f"{_DEFAULTS} or a flag's") for line in lines)
    told = tuple(f"{text}, no plain value" for text in found.unclear.values()) if unknown else ()
    said = (*(line for line in remarks(found) if not line.startswith(told)), *unknown)
    return reworded(result, found, lines, remarks=said, knows_sigma=asked.sigma is not None)


def _built(found: Reading, asked: Asked, sigma: float, mean: float) -> Exported:
    winner = found.winner(sigma, mean)
    return _EXPORTERS[asked.to](winner, _target(found, winner, asked, asked.to))


def _check_known(
    found: Reading, asked: Asked, result: Exported, assumed: tuple[float, float]
) -> None:
    """Refuse where a sigma or mean length that nobody gave shows in the keys."""
    sigma, mean = assumed
    names = moved_keys(result, _built(found, asked, 2 * sigma, mean))
    if asked.sigma is None and names:
        raise SpecError(
            f"--sigma: {', '.join(names)} of {asked.to} is in another unit than {found.sources.get('beta', 'beta')} of "
            f"{found.framework}, and the scale between them is the reward's spread. {SIGMA_HELP}"
        )
    names = moved_keys(result, _built(found, asked, sigma, mean / 2))
    if asked.sizes.mean_tokens is None and names:
        raise SpecError(
            f"--mean-tokens: needed for {', '.join(names)}: your mean completion length in tokens"
        )


def as_plain(found: Reading, asked: Asked) -> dict[str, Any]:
    """Everything in every unit; what depends on a sigma or mean length that was not given is None.

    Raises:
        SpecError: sizes that don't fit together.
    """

    def with_these(one: Reading, sigma: float, mean: float) -> dict[str, Any]:
        winner = one.winner(sigma, mean)
        return plain(winner, _target(one, winner, asked, one.framework))

    sigma = asked.sigma or 1.0
    mean = _mean(found, asked)
    facts = with_these(found, sigma, mean)
    tried: list[dict[str, Any]] = []
    if asked.sigma is None:
        tried.append(with_these(found, 2 * sigma, mean))
    if asked.sizes.mean_tokens is None:
        tried.append(with_these(found, sigma, mean / 2))
    for name in found.unclear:
        tried += others(found, name, lambda one: with_these(one, sigma, mean))
    # Of a group of 1 the algorithm compares nothing; the file's own shape stands there for all that.
    facts["trainer"] |= {"prompts": found.prompts, "group_size": found.group}
    for name in ("prompts", "group_size"):
        if any(field.partition(".")[0] == name for field in found.unclear):
            facts["trainer"][name] = None
    for other in tried:
        other["trainer"] |= {"prompts": found.prompts, "group_size": found.group}
        facts = _agreed(facts, other)
    for name in ("guards", "kl_guard", "kl_limit", "stop", "gold", "confirmation"):
        del facts[name]  # of a study alone
    facts["trainer"]["steps"] = None if "steps" in found.unclear else found.steps
    own = (reworded_text(text, found) for text in facts["warnings"])
    facts["warnings"] = [*remarks(found), *own]
    facts["read"] = {
        "framework": found.framework,
        "version": found.version,
        "file": found.name,
        "keys_of_fields": dict(found.sources),
        "set_to_unknown": dict(found.unclear),
        "left_to_defaults": {name: _plain(value) for name, value in found.defaults.items()},
        "unknown_keys": list(found.unknown),
        "keys_not_carried_over": list(found.unread),
        "warnings": list(found.warnings),
    }
    return facts


def remarks(found: Reading) -> tuple[str, ...]:
    """What a person has to know of the reading, whatever it is converted to."""
    lines = [*found.warnings]
    if found.unknown:
        lines.append(
            f"{found.framework} {found.version} has no such key, so it was not read: {', '.join(found.unknown)}"
        )
    if found.unread:
        lines.append(f"not carried over, as no part of the KL setting: {_listed(found.unread)}")
    target = found.kl.target_token
    if target is not None and target > _MOST_TOKEN_KL:
        key = found.sources.get("target_kl", "target")
        lines.append(
            f"{key}: {found.framework} compares per-token means with it, and {target:g} nats per token is far above what "
            f"training reaches; {target:g} is a usual target per sequence: did you mean {target:g} / your mean completion "
            "length in tokens?"
        )
    if found.steps is not None:
        key = found.sources.get("steps", "steps")
        lines.append(f"{key}: the number of steps is not carried over ({found.steps})")
    return tuple(lines)


def _listed(names: Sequence[str]) -> str:
    """All of them; where they are many, whole sections by their number of keys."""
    for depth in (None, 2, 1):
        sections: dict[str, list[str]] = {}
        for name in names:
            sections.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(sections) <= _MANY:
            break
    return ", ".join(
        inside[0] if len(inside) == 1 else f"{section}.* ({len(inside)} keys)"
        for section, inside in sections.items()
    )


def _target(found: Reading, winner: Winner, asked: Asked, framework: str) -> Target:
    """Sizes that are not given are the file's; a group of 1 is its own too."""
    sizes, group = asked.sizes, asked.sizes.group
    if group is None and found.group != winner.trainer.group_size:
        sizes = replace(sizes, group=found.group)
    try:
        target = make_target(
            winner, framework, asked.version if asked.to == framework else None, sizes
        )
    except SpecError as error:
        raise SpecError(_with_sources(str(error), found, asked)) from error
    own = [text for text in target.warnings if not text.startswith("--max-new-tokens without")]
    return replace(target, warnings=tuple(own))


def _mean(found: Reading, asked: Asked) -> float:
    """Of a completion, tokens; where it is not given, one that fits: what depends on it is asked for."""
    longest = asked.sizes.max_new_tokens or found.trainer_spec().max_new_tokens
    return asked.sizes.mean_tokens or float(longest)


def _with_sources(text: str, found: Reading, asked: Asked) -> str:
    """A refusal of sizes; one that no flag gave is named by the file's key or default."""
    text = text.replace("--version", "--to-version")
    for flag, given, name in (
        ("--group", asked.sizes.group, "group_size"),
        ("--batch", asked.sizes.batch, "prompts"),
        ("--mean-tokens", asked.sizes.mean_tokens, "max_new_tokens"),
    ):
        key = found.sources.get(name)
        if given is None and key is not None and text.startswith(f"{flag}: "):
            text = f"{found.where}: {key}: {text.removeprefix(f'{flag}: ')}; {flag} sets another"
    return text


def _agreed(one: Any, other: Any) -> Any:
    """The first with None wherever the second differs."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _agreed(value, other.get(name)) for name, value in one.items()}
    return one if is_same(one, other) or isinstance(one, list) else None


def _plain(value: Any) -> Any:
    return (
        value if isinstance(value, bool | int | float | str | list) or value is None else str(value)
    )

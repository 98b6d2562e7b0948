"""An export's words about a study in, the same about a configuration that was read out.

Only what is said beside the settings changes: comments, warnings and the heading are reworded one by one and the
file is drawn anew by the export's own renderer, so no key, value or command can be touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kltune.adopt.reading import Reading
from kltune.export.key import Exported, Key
from kltune.export.nemo_rl import nemo_rl_text
from kltune.export.openrlhf import openrlhf_text
from kltune.export.render import python_text
from kltune.export.verl import verl_text
from kltune.spec.penalty import Penalty
from kltune.spec.trainer import TrainerSpec

_RENDERERS: Final[Mapping[str, Callable[[Exported, Sequence[str]], str]]] = MappingProxyType(
    {
        "trl": python_text,
        "verl": verl_text,
        "openrlhf": openrlhf_text,
        "nemo-rl": nemo_rl_text,
    }
)

_WORDS: Final = (
    (r"of the study's other trials", "of the file's other settings"),
    (r"\bthe study's\b", "the file's"),
    (r"\bthe study\b", "the file"),
    (r"\bstudy's\b", "file's"),
    (r"\bwhat was studied\b", "what the file says"),
    (r"\btake a trial\b", "take a configuration"),
    (r"\bor a trial\b", "or a configuration"),
    (r"\bor a study\b", "or a configuration"),
    (r" \(chosen by --trial[^)]*\)", ""),
    (r"\bstudy\b", "file"),
)

_SIZES: Final = {
    "--group": "group_size",
    "--batch": "prompts",
    "--max-new-tokens": "max_new_tokens",
}
"""Flag of a size, and the field of the reading that it replaces."""

_FIELD: Final = rf"(?<![\w.])trainer\.((?:{'|'.join(TrainerSpec.model_fields)})(?:\.[a-z_]+)?)\b"
"""A field of a spec's trainer section; other trainers have a section of that name too."""

_CLAMPS: Final = frozenset({"verl", "openrlhf"})
"""Frameworks that clamp a token's KL to ±10 nats (verl: k3 only)."""

_NAMES: Final = "trl|verl|openrlhf|nemo-rl"
_ADVICE: Final = re.compile(
    rf"take ((?:(?:, | or )?(?:--to )?(?:{_NAMES})(?: \([^)]*\))?)+)(, or )?"
)
"""What a refusal says to take instead, and what follows it."""

_OWN_WAY: Final = re.compile(
    r"(?:verl|OpenRLHF|TRL|NeMo-RL)(?: [\d.]+)? (?:clamps|clips|takes|pays)\b"
)


def reworded(
    found: Exported,
    read: Reading,
    lines: Sequence[str],
    *,
    remarks: Sequence[str] = (),
    knows_sigma: bool,
) -> Exported:
    """Comments, warnings and the text around them; with the file's own keys where a study has fields of its spec.

    ``lines``: the heading. ``remarks``: of the reading; they stand first.
    """
    speak = _speaker(read, knows_sigma=knows_sigma)
    told = [text for text in found.warnings if not _is_its_own(text, read, found.framework)]
    said = replace(
        found,
        keys=tuple(_told(key, speak, read) for key in found.keys),
        warnings=(*remarks, *(speak(text) for text in told), *_clamped(read, found.framework)),
        is_converted=True,
    )
    return said.with_text(_RENDERERS[said.framework](said, lines))


def _told(key: Key, speak: Callable[[str], str], read: Reading) -> Key:
    comment = speak(key.comment)
    if key.name.rpartition(".")[2] in ("lr_scheduler_type", "lr_scheduler"):
        comment = comment.replace("as in the file", "a constant rate, whatever the file had")
    rate = read.sources.get("learning_rate", "")
    if "(default of" in rate:
        comment = re.sub(r"^the file's, for ", f"{rate}, for ", comment)
    return replace(key, comment=comment)


def _is_its_own(text: str, read: Reading, framework: str) -> bool:
    """A way of the target that the source has too: no difference."""
    clamps = {read.framework, framework} <= _CLAMPS and "clamps" in text
    return clamps or (read.framework == framework and _OWN_WAY.match(text) is not None)


def _clamped(read: Reading, framework: str) -> tuple[str, ...]:
    """What the source does to a token's KL and the target does not."""
    penalty = read.kl.penalty
    if read.framework not in _CLAMPS or framework in _CLAMPS or penalty is None:
        return ()
    if read.framework == "verl" and penalty not in (Penalty.K3_LOSS, Penalty.K3PLUS_LOSS):
        return ()
    return (
        f"{read.framework} clamps a token's KL to ±10 nats, {framework} as it is set here does not",
    )


def reworded_text(text: str, read: Reading) -> str:
    """One message, such as a refusal."""
    found = _speaker(read, knows_sigma=True)(text)
    return _ADVICE.sub(lambda one: _elsewhere(one, read.framework), found).replace(
        "--version", "--to-version"
    )


def _elsewhere(advice: re.Match[str], framework: str) -> str:
    """Frameworks to take instead, without the one that the file is for."""
    given = re.findall(rf"({_NAMES})( \([^)]*\))?", advice[1])
    others = [f"--to {name}{words}" for name, words in given if name != framework]
    if others:
        return f"take {' or '.join(others)}{advice[2] or ''}"
    return "take " if advice[2] else f"keep {framework}"


def _speaker(read: Reading, *, knows_sigma: bool) -> Callable[[str], str]:
    beta = read.sources.get("beta", "beta")

    def whose(found: re.Match[str]) -> str:
        key = read.sources.get(_SIZES.get(found[1], ""), "the file's own")
        return f"{key}; {found[1]} sets yours"

    def speak(text: str) -> str:
        if not knows_sigma:
            text = re.sub(
                r"beta [\d.e+-]+ of the study[^;\n]*?sigma_R [\d.]+: advantage units per nat[^;\n]*",
                f"{beta} as it stands: the same unit",
                text,
            )
        text = re.sub(
            r"\bbeta ([\d.e+-]+) (of the study|as it stands)", rf"{_escaped(beta)} \1 \2", text
        )
        text = re.sub(
            r"\btrainer\.minibatches (\d+)", r"\1 update(s) per pass over a rollout", text
        )
        text = re.sub(
            _FIELD, lambda found: read.sources.get(found[1], f"as {read.framework} has it"), text
        )
        text = re.sub(r"\bthe study's own; (--[\w-]+) sets yours", whose, text)
        for old, new in _WORDS:
            text = re.sub(old, new, text)
        return text

    return speak


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\")

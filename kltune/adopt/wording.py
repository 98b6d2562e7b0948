"""An export's words about a study in, the same about a configuration that was read out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kltune.adopt.reading import Reading
from kltune.export.key import Exported
from kltune.export.render import comment_lines
from kltune.spec.penalty import Penalty

_WORDS: Final = (
    (r"of the study's other trials", "of the file's other settings"),
    (r"\bthe\s+study's\s+own; (--[\w-]+) sets yours", r"the file's own; \1 sets yours"),
    (r"\bthe study's\b", "the file's"),
    (r"\bthe study\b", "the file"),
    (r"\bstudy's\b", "file's"),
    (r"\bstudied=\(", "settings=("),
    (r"\$\{studied\[@\]\}", "${settings[@]}"),
    (r"\bwhat was studied\b", "what the file says"),
    (r"\btake a trial\b", "take a configuration"),
    (r"\bor a trial\b", "or a configuration"),
    (r"\bor a study\b", "or a configuration"),
    (r" \(chosen by --trial[^)]*\)", ""),
    (r"\bstudy\b", "file"),
)


_FIELD: Final = r"\btrainer\.([a-z_]+(?:\.[a-z_]+)?)\b"
_SCHEDULER: Final = r"(lr_scheduler\S* ?\"?constant\"?,?\s+# )as in the study"

_CLAMPS: Final = frozenset({"verl", "openrlhf"})
"""Frameworks that clamp a token's KL to ±10 nats (verl: k3 only)."""

_OWN_WAY: Final = re.compile(
    r"(?:verl|OpenRLHF|TRL|NeMo-RL)(?: [\d.]+)? (?:clamps|clips|takes|pays)\b"
)


def reworded(
    found: Exported, read: Reading, *, remarks: Sequence[str] = (), knows_sigma: bool
) -> Exported:
    """Comments, warnings and text; with the file's own keys where a study has fields of its spec.

    ``remarks``: of the reading; they stand first.
    """
    speak = _speaker(read, knows_sigma=knows_sigma)
    keys = tuple(replace(key, comment=speak(key.comment)) for key in found.keys)
    told = [text for text in found.warnings if not _is_its_own(text, read, found.framework)]
    warnings = (*remarks, *(speak(text) for text in told), *_clamped(read, found.framework))
    before, after = comment_lines((), found.warnings), comment_lines((), warnings)
    if after:
        after[0] = "# To be looked at:"
    lines = found.text.split("\n")
    place = _place(lines, before)
    text = "\n".join([*lines[:place], *lines[place + len(before) :]])
    spoken = speak(text).split("\n")
    text = "\n".join([*spoken[:place], *after, *spoken[place:]])
    return replace(found, keys=keys, warnings=warnings, text=text)


def _place(lines: Sequence[str], before: Sequence[str]) -> int:
    """Where the warnings stand, or would: after the comments on top."""
    if before:
        return lines.index(before[0])
    top = next(num for num, line in enumerate(lines) if line.startswith("# keys: "))
    return top + 1


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
    return found.replace("--version", "--to-version")


def _speaker(read: Reading, *, knows_sigma: bool) -> Callable[[str], str]:
    beta = read.sources.get("beta", "beta")

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
        text = re.sub(_SCHEDULER, r"\1a constant rate, whatever the file had", text)
        text = re.sub(
            _FIELD, lambda found: read.sources.get(found[1], f"as {read.framework} has it"), text
        )
        for old, new in _WORDS:
            text = re.sub(old, new, text)
        return text

    return speak


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\")

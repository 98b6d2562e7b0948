"""How the study made texts of prompts and ended completions in; each framework's own keys for it, or sentences, out.

TRL hands ``generation_kwargs`` to vLLM's SamplingParams (``stop``) or to Transformers' GenerationConfig, whose
``stop_strings`` need a tokenizer that TRL does not pass to generate. NeMo-RL has ``policy.generation.stop_strings``; verl
hands ``data.apply_chat_template_kwargs`` to the template (``trainer/config/data/legacy_data.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kltune.export.key import Key
from kltune.export.setting import Winner
from kltune.export.target import Target

_SWITCH: Final = "enable_thinking"
"""What Qwen3's template and its like call the switch."""
_VLLM: Final = "the study ended completions there (trainer.stop); with use_vllm, which reads it, take the # off"


def text_keys(winner: Winner, target: Target, builder: str = "") -> list[Key]:
    """The keys that carry stop strings and thinking over; what has none is told by :func:`text_warnings`."""
    keys: list[Key] = []
    stop, thinks = winner.trainer.stop, _thinks(winner)
    match target.framework:
        case "trl":
            has = f"{builder}.generation_kwargs" in target.keys
            if stop and has:
                keys.append(Key("generation_kwargs", {"stop": list(stop)}, _VLLM, is_set=False))
            if thinks is not None and f"{builder}.chat_template_kwargs" in target.keys:
                value: Mapping[str, object] = {_SWITCH: thinks}
                keys.append(Key("chat_template_kwargs", value, f"model.thinking {_word(winner)}"))
        case "nemo-rl":
            name = "policy.generation.stop_strings"
            if stop and name in target.keys:
                keys.append(Key(name, stop, "trainer.stop"))
        case "verl":
            if thinks is not None:
                name = f"data.apply_chat_template_kwargs.{_SWITCH}"
                words = f"model.thinking {_word(winner)}; as +{name} on the command line"
                keys.append(Key(name, thinks, words, is_set=False))
        case _:
            pass
    return keys


def text_warnings(winner: Winner, keys: list[Key]) -> list[str]:
    """What of it this file does not set: a reward that counts on it would judge other texts."""
    names = {key.name.rpartition(".")[2] for key in keys}
    stop, text = winner.trainer.stop, winner.text
    found: list[str] = []
    if stop and not names & {"generation_kwargs", "stop_strings"}:
        shown = ", ".join(repr(one) for one in stop)
        found.append(
            f"trainer.stop: the study's completions ended at {shown}, and no key here says so: give it to the "
            "generator, or lengths, KL per sequence and rewards are of longer texts"
        )
    if _thinks(winner) is not None and not names & {"chat_template_kwargs", _SWITCH}:
        found.append(
            f"model.thinking: the study's template was asked to think {_word(winner)}; no key here says so: set "
            "it in the chat template"
        )
    if text.answer_after is not None:
        found.append(
            f"model.answer_after: the study's rewards saw what comes after {text.answer_after!r} alone; other trainers hand "
            "them the whole completion: cut it in the reward"
        )
    if text.system is not None:
        found.append(
            f"model.system: every prompt of the study began with the system message {_short(text.system)!r}: put it "
            "into the data"
        )
    if text.chat == "never":
        found.append(
            "model.chat: never: the study's prompts went through no chat template: give plain text prompts"
        )
    return found


def _thinks(winner: Winner) -> bool | None:
    return {"on": True, "off": False}.get(winner.text.thinking)


def _word(winner: Winner) -> str:
    return winner.text.thinking


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"

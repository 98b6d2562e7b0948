"""Where completions end and how prompts are made goes along, by a key of the framework's own or as a sentence."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from export_case import target, winner

from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.setting import Texts, Winner
from kltune.export.target import Target
from kltune.export.texts import text_keys, text_warnings
from kltune.export.trl import export_trl
from kltune.export.verl import export_verl

EXPORTS: dict[str, Callable[[Winner, Target], Exported]] = {
    "trl": export_trl,
    "nemo-rl": export_nemo_rl,
    "verl": export_verl,
    "openrlhf": export_openrlhf,
}
STOP = ('\nUser: "', "###")
THINKS_NOT = Texts(system="Be brief.", thinking="off", answer_after="</think>")


def exported(framework: str, text: Texts = THINKS_NOT, stop: tuple[str, ...] = STOP) -> Exported:
    found = winner(trainer={"stop": list(stop)}, text=text)
    return EXPORTS[framework](found, target(found, framework))


def test_nemo_rl_is_told_the_stop_strings() -> None:
    found = exported("nemo-rl")
    assert found.values["policy.generation.stop_strings"] == STOP
    read: Any = yaml.safe_load(found.text)
    assert read["policy"]["generation"]["stop_strings"] == list(STOP)
    assert not any("trainer.stop" in warning for warning in found.warnings)


def test_trl_is_told_to_think_or_not_and_stop_stands_there_for_vllm() -> None:
    found = exported("trl")
    assert found.values["chat_template_kwargs"] == {"enable_thinking": False}
    assert "generation_kwargs" not in found.values
    line = next(line for line in found.text.split("\n") if "generation_kwargs=" in line)
    assert line.strip().startswith("# generation_kwargs={")
    given = line[line.index("{") : line.index("}") + 1]
    assert ast.literal_eval(given) == {"stop": list(STOP)}
    compile(found.text, "config.py", "exec")


@pytest.mark.parametrize("framework", sorted(EXPORTS))
def test_what_no_key_carries_is_a_sentence(framework: str) -> None:
    found = exported(framework)
    told = " ".join(found.warnings)
    assert "model.system: every prompt of the study began with the system message" in told
    assert "what comes after '</think>' alone" in told
    if framework in ("verl", "openrlhf"):
        assert "trainer.stop" in told
    if framework in ("openrlhf", "nemo-rl"):
        assert "asked to think off" in told
    if framework == "verl":
        assert "# enable_thinking: false" in found.text


@pytest.mark.parametrize("framework", sorted(EXPORTS))
def test_a_study_without_any_of_it_says_nothing_of_it(framework: str) -> None:
    found = winner()
    where = target(found, framework)
    assert text_keys(found, where, "GRPOConfig") == []
    assert text_warnings(found, []) == []
    told = EXPORTS[framework](found, where)
    assert not any(word in told.text for word in ("stop_strings", "thinking", "trainer.stop"))
    never = exported(framework, Texts(chat="never"), ())
    assert any("plain text prompts" in warning for warning in never.warnings)

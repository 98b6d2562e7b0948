from __future__ import annotations

import ast
import shlex
import shutil
import subprocess

import pytest
from ruamel.yaml import YAML

from kltune.export.key import Exported, Key
from kltune.export.render import (
    comment_lines,
    hydra_text,
    python_text,
    shell_text,
    value_is_switch,
    yaml_text,
)

KEYS = (
    Key("part.small", 1e-06, "a\nb"),
    Key("part.word", "low_var_kl+", "c # d"),
    Key("part.none", None, "e"),
    Key("other.flag", True, "f"),
    Key("part.pair", (0.2, 0.28), "g"),
    Key("off.steps", 5, "h", is_set=False),
)


def exported(keys: tuple[Key, ...] = KEYS, builder: str = "") -> Exported:
    return Exported("verl", "0.9.0", keys, ("one\nwarning",), builder=builder)


def test_yaml_is_nested_and_reads_back_in_both_yaml_versions() -> None:
    text = yaml_text(exported(), ["heading"])
    for version in ("1.1", "1.2"):
        loader = YAML(typ="safe")
        loader.version = version  # type: ignore[assignment]
        tree = loader.load(text)
        assert tree["part"] == {
            "small": 1e-06,
            "word": "low_var_kl+",
            "none": None,
            "pair": [0.2, 0.28],
        }
        assert tree["other"] == {"flag": True}
        assert "off" not in tree
    assert "small: 1.0e-06  # a b" in text
    assert "# steps: 5  # not set: h" in text


def test_the_command_line_has_every_key_that_is_set() -> None:
    lines = hydra_text(KEYS, "run")
    assert lines[0] == "# run \\"
    assert "#   part.word=low_var_kl+ \\" in lines
    assert "#   part.none=null \\" in lines
    assert lines[-1] == "#   part.pair=[0.2, 0.28]"
    assert not any("steps" in line for line in lines)


def test_python_text_is_python_and_each_key_has_its_comment() -> None:
    keys = (Key("beta", 0.1, "x"), Key("top_k", None, "y"), Key("max_steps", 5, "z", is_set=False))
    text = python_text(exported(keys, "GRPOConfig"), ["heading " * 30])
    call = ast.parse(text).body[-1]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    assert {k.arg for k in call.value.keywords} == {"output_dir", "beta", "top_k"}
    assert "    beta=0.1,  # x\n" in text
    assert "    # max_steps=5,  # not set: z\n" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_shell_script_passes_exactly_the_flags_that_are_set() -> None:
    keys = (
        Key("--kl", 0.1, "it's; $(no)"),
        Key("--use_loss", True, "switch"),
        Key("--pair", (0.2, 0.28), "two"),
        Key("--word", "a b", "quoted"),
        Key("--off", 1, "x", is_set=False),
    )
    text = shell_text(exported(keys), ["heading"], "printf '%s\\n'")
    done = subprocess.run(
        ["bash", "-c", text, "bash", "--mine"], capture_output=True, text=True, check=True
    )
    expected = "--kl 0.1 --use_loss --pair 0.2 0.28 --word 'a b' --mine"
    assert done.stdout.split("\n")[:-1] == shlex.split(expected)


def test_a_line_break_in_a_name_can_not_end_a_comment() -> None:
    lines = comment_lines(["study a\nimport os"], ["b\nc"])
    assert all(line.startswith("#") for line in lines)
    assert len(lines) == 3


def test_only_true_is_a_switch() -> None:
    assert [value_is_switch(v) for v in (True, 1, False, "x")] == [True, False, False, False]

from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import OPENRLHF_OLD, TRL, VERL_GRPO, put

from kltune.adopt.convert import read_config
from kltune.adopt.given import read_given
from kltune.errors import SpecError


def test_nested_dotted_and_json_files_are_the_same(tmp_path: Path) -> None:
    nested = put(tmp_path, "a.yaml", "algorithm:\n  kl_ctrl: {kl_coef: 1e-3}\n")
    dotted = put(tmp_path, "b.yaml", "algorithm.kl_ctrl.kl_coef: 0.001\n")
    js = put(tmp_path, "c.json", '{"algorithm": {"kl_ctrl.kl_coef": 0.001}}')
    found = [read_given("verl", path).values for path in (nested, dotted, js)]
    assert found == [{"algorithm.kl_ctrl.kl_coef": 0.001}] * 3


def test_hydras_own_keys_are_passed_over_and_defaults_are_named(tmp_path: Path) -> None:
    text = "defaults: [mine, _self_]\nhydra: {run: {dir: x}}\nalgorithm: {_target_: a.B, lam: 1}\n"
    found = read_given("verl", put(tmp_path, "a.yaml", text))
    assert found.values == {"algorithm.lam": 1}
    assert found.notes[0].startswith("defaults: ['mine', '_self_'] is not followed")


def test_verls_own_default_list_is_on_record_so_it_is_no_doubt(tmp_path: Path) -> None:
    text = "defaults: [ppo_trainer, _self_]\nalgorithm: {lam: 1}\n"
    assert read_given("verl", put(tmp_path, "a.yaml", text)).notes == ()


def test_each_kind_of_file_is_read_by_its_ending(tmp_path: Path) -> None:
    assert read_given("trl", put(tmp_path, "a.py", TRL)).values["beta"] == 0.04
    assert read_given("trl", put(tmp_path, "a.json", '{"beta": 0.1}')).values == {"beta": 0.1}
    flags = put(tmp_path, "a.sh", "trl grpo --beta 0.1 --num-generations 4\n")
    assert read_given("trl", flags).values == {"beta": 0.1, "num_generations": 4}
    assert read_given("verl", put(tmp_path, "b.sh", VERL_GRPO)).values["trainer.nnodes"] == 1
    old = read_given("openrlhf", put(tmp_path, "c.sh", OPENRLHF_OLD)).values
    assert old["--init_kl_coef"] == 0.02
    plain = read_given("openrlhf", put(tmp_path, "d.yaml", "init_kl_coef: 0.02\n"))
    assert plain.values == {"--init_kl_coef": 0.02}


@pytest.mark.parametrize(
    ("framework", "name", "text", "words"),
    [
        ("verl", "a.yaml", "a: [", "not YAML"),
        ("verl", "a.yaml", "- 1\n", "must be `key: value` lines (got a list)"),
        ("verl", "a.json", "{", "not JSON"),
        ("verl", "a.py", "x = 1\n", "read for --from trl only"),
        ("verl", "a.sh", "echo hello\n", "no key such as algorithm.adv_estimator=grpo"),
        ("openrlhf", "a.sh", "echo hello\n", "no flag such as --algo.kl.init_coef"),
        ("nemo-rl", "a.yaml", "{}\n", "no key such as loss_fn"),
        ("trl", "a.yaml", "{}\n", "no key of GRPOConfig"),
        ("trl", "a.py", "PPOConfig(beta=1)\n", "no GRPOConfig(...) or RLOOConfig(...)"),
    ],
)
def test_what_holds_nothing_is_refused(
    framework: str, name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        read_given(framework, put(tmp_path, name, text))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_a_folder_and_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    for path, words in (
        (tmp_path / "no.yaml", "no such file"),
        (tmp_path, "can't be read"),
        (tmp_path / "x.yaml", "not UTF-8"),
    ):
        with pytest.raises(SpecError, match=words):
            read_given("verl", path)


def test_messages_name_the_whole_path(tmp_path: Path) -> None:
    path = put(tmp_path, "a.yaml", "algorithm: {adv_estimator: 5}\n")
    with pytest.raises(SpecError) as caught:
        read_config("verl", path)
    assert str(caught.value).startswith(f"{path}: algorithm.adv_estimator: ")


def test_a_key_that_stands_twice_is_one_plain_sentence(tmp_path: Path) -> None:
    path = put(tmp_path, "a.yaml", "algorithm:\n  gamma: 1\n  gamma: 2\n")
    with pytest.raises(SpecError) as caught:
        read_given("verl", path)
    assert str(caught.value) == f"{path}: line 3: gamma stands there a second time; leave one"
    with pytest.raises(SpecError, match="gamma stands there a second time; leave one"):
        read_given("verl", put(tmp_path, "a.json", '{"algorithm": {"gamma": 1, "gamma": 2}}'))


@pytest.mark.parametrize("name", ["a.yaml", "a.sh", "a.py", "a.json"])
def test_an_empty_file_is_called_empty(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is empty"):
        read_given("trl", put(tmp_path, name, " \n"))
    with pytest.raises(SpecError, match="nothing but comments"):
        read_given("trl", put(tmp_path, "b.yaml", "# a\n"))

from __future__ import annotations

import pytest
from adopt_case import keys

from kltune.adopt.given import Given
from kltune.adopt.keys import Keys, release_of
from kltune.errors import SpecError
from kltune.export.releases import key_list


def of(values: dict[str, object], unreadable: dict[str, str] | None = None) -> Keys:
    return Keys(Given("c.yaml", values, unreadable or {}), key_list("verl", "0.9.0")[0])


def test_the_file_wins_and_the_rest_is_the_releases_default_with_its_source() -> None:
    found = of({"algorithm.lam": 0.9})
    assert found.number("algorithm.lam", field="critic.gae_lambda") == 0.9
    assert found.number("algorithm.gamma", field="critic.gamma") == 1
    assert found.sources == {
        "critic.gae_lambda": "algorithm.lam",
        "critic.gamma": "algorithm.gamma (default of verl 0.9.0)",
    }
    assert found.defaults == {"algorithm.gamma": 1.0}


def test_references_are_followed_in_the_file_and_in_the_defaults() -> None:
    found = of({"actor_rollout_ref.actor.ppo_epochs": 3, "data.x": "${algorithm.lam}"})
    assert (
        found.value("critic.ppo_epochs") == 3
    )  # ${oc.select:actor_rollout_ref.actor.ppo_epochs,1}
    assert found.value("data.x") == 1.0
    assert of({"a.b": "${a.b}"}).value("a.b") is None  # round in a circle: no value


def test_a_vital_value_that_is_not_plain_is_refused_and_another_is_not_known() -> None:
    found = of({}, {"algorithm.lam": "$LAM"})
    with pytest.raises(SpecError, match=r"algorithm.lam is \$LAM, no plain value"):
        found.number("algorithm.lam", is_vital=True)
    assert found.number("algorithm.lam", field="critic.gae_lambda") == 1.0
    assert found.unclear == {"critic.gae_lambda": "algorithm.lam is $LAM"}
    assert found.sources["critic.gae_lambda"] == "algorithm.lam (unknown: set in the file to $LAM)"
    assert found.defaults == {}
    assert found.warnings == [
        "algorithm.lam is $LAM, no plain value: what it is set to is not known"
    ]


@pytest.mark.parametrize("value", ["abc", [1], True, float("nan"), "inf"])
def test_what_is_no_number_is_refused_by_its_key(value: object) -> None:
    with pytest.raises(SpecError, match=r"algorithm\.lam must be a"):
        of({"algorithm.lam": value}).number("algorithm.lam")


def test_text_that_is_a_number_is_one_and_truth_values_may_be_text() -> None:
    found = of({"algorithm.lam": "1e-6", "algorithm.use_kl_in_reward": "True", "data.n": 1.5})
    assert found.number("algorithm.lam") == 1e-6
    assert found.switch("algorithm.use_kl_in_reward") is True
    with pytest.raises(SpecError, match="must be a whole number"):
        found.whole("data.n")
    with pytest.raises(SpecError, match="must be true or false"):
        of({"algorithm.use_kl_in_reward": "maybe"}).switch("algorithm.use_kl_in_reward")


def test_unknown_keys_are_told_from_those_that_say_nothing_of_the_kl() -> None:
    found = of({"algorithm.kl_penalti": "kl", "data.train_files": "x", "algorithm.lam": 1})
    found.value("algorithm.lam")
    unknown, unread = found.passed_over()
    assert unknown == ("algorithm.kl_penalti (did you mean algorithm.kl_penalty?)",)
    assert unread == ("data.train_files",)


def test_without_a_version_the_newest_release_with_the_files_keys_is_read() -> None:
    old = Given("x", {"--init_kl_coef": 0.1, "--kl_estimator": "k2"})
    listed, words = release_of("openrlhf", None, old)
    assert listed.version == "0.10.0"
    assert "the newest on record that has its keys" in words
    listed, words = release_of("openrlhf", None, Given("x", {"--algo.kl.init_coef": 0.1}))
    assert listed.version == "0.11.0"
    assert "--from-version X says which" in words


def test_a_release_before_all_lists_is_refused_by_the_right_flag() -> None:
    with pytest.raises(SpecError, match=r"--from-version: the keys of verl before 0\.3\.0"):
        release_of("verl", "0.1.0", Given("x", {}))


def test_trls_own_class_wins_over_the_one_that_it_extends() -> None:
    found = keys("trl", "1.16.0", "GRPOConfig.")
    assert found.number("learning_rate") == 1e-6  # TrainingArguments: 5e-5


def test_a_misspelled_key_of_a_list_that_is_not_complete_is_named_too() -> None:
    found = keys("trl", "1.16.0", "GRPOConfig.", use_bias_corection_kl=True, report_to="none")
    unknown, unread = found.passed_over()
    assert unknown == ("use_bias_corection_kl (did you mean use_bias_correction_kl?)",)
    assert unread == ("report_to",)

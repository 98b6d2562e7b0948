from __future__ import annotations

import pytest

from kltune.errors import SpecError
from kltune.export.releases import FRAMEWORKS, key_list, listed_versions, number_of


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_list_names_its_source_and_its_date(framework: str) -> None:
    for version in listed_versions(framework):
        found, doubt = key_list(framework, version)
        assert not doubt
        assert found.version == version
        assert len(found.defaults) > 30
        assert found.source.startswith(("tag v", "trl "))


def test_the_newest_list_holds_where_no_version_is_given() -> None:
    assert {f: key_list(f, None)[0].version for f in FRAMEWORKS} == {
        "trl": "1.16.0",
        "verl": "0.9.0",
        "openrlhf": "0.11.0",
        "nemo-rl": "0.7.0",
    }


def test_versions_are_compared_as_numbers() -> None:
    assert number_of("v0.10.2") > number_of("0.9.10")
    assert number_of("1.0") == (1, 0, 0)
    assert list(listed_versions("openrlhf"))[-1] == "0.11.0"


def test_a_release_between_two_lists_has_the_older_one_and_a_warning() -> None:
    found, doubt = key_list("trl", "1.11.0")
    assert found.version == "1.9.0"
    assert "trl 1.11.0 itself was not read" in doubt
    assert "tag v1.9.0" in doubt


@pytest.mark.parametrize("version", ["0.9.0", "main"])
def test_a_release_before_all_lists_or_none_at_all_is_refused(version: str) -> None:
    with pytest.raises(SpecError, match="--version"):
        key_list("trl", version)


def test_defaults_that_changed_are_on_record() -> None:
    def default(framework: str, version: str, key: str) -> object:
        return key_list(framework, version)[0].defaults.get(key, "absent")

    correction = "GRPOConfig.use_bias_correction_kl"
    versions = ("0.25.1", "0.26.2", "1.9.0", "1.16.0")
    assert [default("trl", v, correction) for v in versions] == ["absent", False, False, True]
    assert [default("trl", v, "GRPOConfig.beta") for v in ("0.18.2", "0.19.1")] == [0.04, 0.0]
    losses = ("0.21.0", "0.22.2")
    assert [default("trl", v, "GRPOConfig.loss_type") for v in losses] == ["bnpo", "dapo"]
    assert default("verl", "0.3.0", "algorithm.use_kl_in_reward") == "absent"
    assert default("verl", "0.4.0", "algorithm.use_kl_in_reward") is False
    assert default("openrlhf", "0.10.0", "--init_kl_coef") == 0.01
    assert default("openrlhf", "0.10.2", "--algo.kl.init_coef") == 0.01
    assert default("nemo-rl", "0.4.0", "loss_fn.reference_policy_kl_type") == "absent"
    assert default("nemo-rl", "0.5.0", "loss_fn.reference_policy_kl_type") == "k3"


@pytest.mark.slow
def test_the_newest_list_of_trl_is_the_installed_package() -> None:
    import dataclasses
    import importlib.metadata

    from trl import GRPOConfig, RLOOConfig

    listed, doubt = key_list("trl", importlib.metadata.version("trl"))
    assert not doubt
    for config in (GRPOConfig, RLOOConfig):
        fields = {f.name: f.default for f in dataclasses.fields(config)}
        own = [k for k in listed.defaults if k.startswith(f"{config.__name__}.")]
        assert len(own) > 50
        for key in own:
            name = key.split(".")[1]
            assert name in fields
            default, seen = fields[name], listed.defaults[key]
            if isinstance(default, bool | int | str) and name in config.__annotations__:
                assert default == seen, key


@pytest.mark.parametrize(
    ("version", "held"),
    [("0.26.0", "0.26.2"), ("0.22.1", "0.22.2"), ("0.25.0", "0.25.1"), ("0.24.0", "0.22.2")],
)
def test_a_patch_release_of_trl_has_the_keys_of_its_own_minor_release(
    version: str, held: str
) -> None:
    found, doubt = key_list("trl", version)
    assert found.version == held
    assert f"trl {version} itself was not read" in doubt


def test_patches_of_others_are_not_taken_to_be_alike() -> None:
    assert key_list("openrlhf", "0.10.1")[0].version == "0.10.0"
    assert key_list("verl", "0.7.2")[0].version == "0.7.1"

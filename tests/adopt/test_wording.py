from __future__ import annotations

from pathlib import Path

import pytest
from adopt_case import EXPORTERS, NEMO, OPENRLHF_NEW, VERL_GRPO, convert, live, read

from kltune.adopt.wording import reworded_text

IN_LOSS = OPENRLHF_NEW.replace("ARGS=(", "ARGS=(--algo.kl.use_loss --algo.kl.estimator k2")
MSE = VERL_GRPO.replace("low_var_kl", "mse")


@pytest.mark.parametrize("to", EXPORTERS)
def test_no_exported_file_speaks_of_a_study_that_never_was(to: str, tmp_path: Path) -> None:
    found = convert(read(tmp_path, "verl", MSE, name="run.sh"), to)
    words = " ".join([found.text, *found.warnings, *(key.comment for key in found.keys)])
    for absent in ("study", "studied", "trainer.clip_ratio", "trial", "recommended"):
        assert absent not in words.replace("settings", "")
    assert "converted by kltune from run.sh (verl 0.9.0)" in found.text


def test_comments_name_the_key_that_a_value_comes_from(tmp_path: Path) -> None:
    found = convert(read(tmp_path, "verl", MSE, name="run.sh"), "trl")
    comments = {key.name: key.comment for key in found.keys}
    assert comments["beta"].startswith("actor_rollout_ref.actor.kl_loss_coef 0.001 as it stands")
    assert comments["epsilon"] == "actor_rollout_ref.actor.clip_ratio_low (default of verl 0.9.0)"
    assert 'lr_scheduler_type="constant",  # a constant rate, whatever the file had' in found.text


def test_what_could_not_be_kept_stands_in_the_file_too(tmp_path: Path) -> None:
    found = convert(read(tmp_path, "verl", MSE, name="run.sh"), "openrlhf")
    flat = " ".join(found.text.replace("\n#", " ").split())
    assert "# To be looked at:" in found.text
    assert all(" ".join(warning.split()) in flat for warning in found.warnings)
    assert "trainer.nnodes" in found.text
    assert '"${settings[@]}"' in found.text


def test_a_frameworks_own_ways_are_no_difference_from_itself(tmp_path: Path) -> None:
    found = read(tmp_path, "openrlhf", OPENRLHF_NEW)
    own = " ".join(convert(found, "openrlhf").warnings)
    assert "clamps" not in own
    assert "takes the KL off" not in own
    other = " ".join(convert(found, "openrlhf", "0.9.0").warnings)
    assert "per micro-batch" in other


def test_a_clamp_that_only_the_source_has_is_said(tmp_path: Path) -> None:
    plain = read(tmp_path, "verl", VERL_GRPO, name="run.sh")
    assert any("verl clamps a token's KL" in w for w in convert(plain, "trl").warnings)
    square = read(tmp_path, "verl", MSE, name="run.sh")
    assert not any("clamps a token's KL" in w for w in convert(square, "trl").warnings)


def test_without_sigma_no_comment_speaks_of_one(tmp_path: Path) -> None:
    found = convert(read(tmp_path, "openrlhf", OPENRLHF_NEW), "openrlhf")
    (beta,) = [key for key in found.keys if key.name == "--algo.kl.init_coef"]
    assert (beta.value, "sigma" in beta.comment) == (0.02, False)


def test_a_refusal_names_the_right_flag(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", VERL_GRPO, name="run.sh")
    text = reworded_text("use --version 0.6.0, or a trial with k2-loss", found)
    assert text == "use --to-version 0.6.0, or a configuration with k2-loss"


@pytest.mark.parametrize("to", EXPORTERS)
def test_rewording_touches_no_key_value_or_command(to: str, tmp_path: Path) -> None:
    for name, text in (("verl", MSE), ("openrlhf", IN_LOSS)):
        found = convert(read(tmp_path, name, text, name="run.sh"), to, None, 0.5, mean_tokens=24)
        assert live(found) == dict(found.values)


def test_labels_tell_the_file_its_default_and_a_flag_apart(tmp_path: Path) -> None:
    found = read(tmp_path, "verl", MSE.replace("data.max_response_length=128", ""), name="run.sh")
    comments = {key.name: key.comment for key in convert(found, "verl", batch=512).keys}
    assert comments["actor_rollout_ref.rollout.n"] == (
        "completions per prompt (actor_rollout_ref.rollout.n; --group sets yours)"
    )
    assert comments["data.max_response_length"] == (
        "tokens (data.max_response_length (default of verl 0.9.0); --max-new-tokens sets yours)"
    )
    flagged = convert(found, "verl", group=4, max_new_tokens=99)
    comments = {key.name: key.comment for key in flagged.keys}
    assert comments["actor_rollout_ref.rollout.n"] == "completions per prompt (--group)"
    assert comments["data.max_response_length"] == "tokens (--max-new-tokens)"
    head = " ".join(flagged.text.replace("\n#", " ").split())
    assert "that file's or its release's default or a flag's" in head
    assert "or a flag's" not in convert(found, "verl").text


def test_a_learning_rate_of_the_release_is_not_called_the_files(tmp_path: Path) -> None:
    text = MSE.replace("actor_rollout_ref.actor.optim.lr=1e-6", "")
    found = convert(read(tmp_path, "verl", text, name="run.sh"), "trl")
    (rate,) = [key for key in found.keys if key.name == "learning_rate"]
    assert rate.comment.startswith(
        "actor_rollout_ref.actor.optim.lr (default of verl 0.9.0), for all weights"
    )


@pytest.mark.parametrize(
    ("advice", "of", "left"),
    [
        (
            "take --to verl or --to openrlhf, or a trial with k2-loss",
            "verl",
            "take --to openrlhf, or a configuration with k2-loss",
        ),
        (
            "take --to verl (use_kl_in_reward), or a trial with k2-loss",
            "verl",
            "take a configuration with k2-loss",
        ),
        (
            "take --to verl or --to openrlhf (estimator reinforce), or a study with x",
            "verl",
            "take --to openrlhf (estimator reinforce), or a configuration with x",
        ),
        ("take --to trl, verl or openrlhf", "openrlhf", "take --to trl or --to verl"),
        (
            "take --to trl, verl or openrlhf",
            "nemo-rl",
            "take --to trl or --to verl or --to openrlhf",
        ),
        ("take a trial with k3-loss", "verl", "take a configuration with k3-loss"),
    ],
)
def test_the_file_s_own_framework_is_never_what_to_take_instead(
    advice: str, of: str, left: str, tmp_path: Path
) -> None:
    texts = {"verl": VERL_GRPO, "openrlhf": OPENRLHF_NEW, "nemo-rl": NEMO}
    name = "a.yaml" if of == "nemo-rl" else "a.sh"
    found = read(tmp_path, of, texts[of], name=name)
    assert reworded_text(f"why; {advice}", found) == f"why; {left}"


def test_a_clamp_that_both_have_is_told_once_and_without_contradiction(tmp_path: Path) -> None:
    said = " ".join(convert(read(tmp_path, "nemo-rl", NEMO), "openrlhf").warnings)
    assert "the file clipped a token's KL to ± 10 nats" in said
    assert "the file's had" not in said

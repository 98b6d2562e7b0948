from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adopt_case import VERL_GRPO, put

from kltune.errors import ExitCode, SpecError
from kltune.launch.convert import TARGETS, ConvertRequest, run_convert

MSE = VERL_GRPO.replace("low_var_kl", "mse")


def request(folder: Path, text: str = MSE, **changes: Any) -> ConvertRequest:
    given: dict[str, Any] = {"framework": "verl", "to": "trl", **changes}
    return ConvertRequest(put(folder, "run.sh", text), **given)


@pytest.mark.parametrize("to", TARGETS)
def test_the_result_alone_goes_to_stdout_and_every_doubt_to_stderr(
    to: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_convert(request(tmp_path, to=to)) is ExitCode.DONE
    shown = capfd.readouterr()
    assert "0.001" in shown.out
    assert "warning: read as verl 0.9.0, the newest on record" in shown.err
    assert "trainer.nnodes" in shown.err
    out = tmp_path / "there"
    assert run_convert(request(tmp_path, to=to, out=out)) is ExitCode.DONE
    again = capfd.readouterr()
    assert (again.out, out.read_text(encoding="utf-8")) == ("", shown.out)
    assert f"wrote {out}" in again.err


def test_json_is_strict(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_convert(request(tmp_path, to="json"))
    facts = json.loads(capfd.readouterr().out)
    assert facts["read"]["file"] == "run.sh"
    assert facts["setting"]["penalty"] == "k2-loss"


def test_wrong_flags_are_told_together_before_anything_is_read(tmp_path: Path) -> None:
    bad = ConvertRequest(tmp_path / "no.sh", "trlx", "peft", sigma=-1.0, out=tmp_path / "a" / "b")
    with pytest.raises(SpecError) as caught:
        run_convert(bad)
    for words in ("--from: must be one of", "--to: must be one of", "--sigma:", "--out:"):
        assert words in str(caught.value)
    with pytest.raises(SpecError, match="--to-version: has no meaning"):
        run_convert(request(tmp_path, to="json", to_version="1.0.0"))
    with pytest.raises(SpecError, match="no such file"):
        run_convert(ConvertRequest(tmp_path / "no.sh", "verl", "trl"))


def test_a_refused_setting_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "there.yaml"
    with pytest.raises(SpecError, match="--to nemo-rl: k3-loss has a forward-KL gradient"):
        run_convert(request(tmp_path, VERL_GRPO, to="nemo-rl", out=out))
    assert not out.exists()


def test_a_hostile_file_does_nothing_to_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = MSE.replace("org/some-model", "'a\x1b[2Jb'").replace(
        "$@", "trainer.x=1 'data.y=\n# beta: 9'"
    )
    run_convert(request(tmp_path, text))
    shown = capfd.readouterr()
    assert "\x1b" not in shown.err + shown.out
    assert "\nbeta: 9" not in shown.out


def test_the_file_that_is_read_is_never_written_over(tmp_path: Path) -> None:
    asked = request(tmp_path, out=tmp_path / "run.sh", force=True)
    with pytest.raises(SpecError, match=r"--out: .*run\.sh is CONFIG itself"):
        run_convert(asked)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "run.sh")
    with pytest.raises(SpecError, match="CONFIG itself"):
        run_convert(request(tmp_path, out=link, force=True))
    assert (tmp_path / "run.sh").read_text(encoding="utf-8") == MSE


def test_a_file_of_another_hand_is_kept_but_by_force(tmp_path: Path) -> None:
    out = put(tmp_path, "mine.py", "my = 1\n")
    with pytest.raises(SpecError, match=r"mine\.py"):
        run_convert(request(tmp_path, out=out))
    assert out.read_text(encoding="utf-8") == "my = 1\n"
    run_convert(request(tmp_path, out=out, force=True))
    run_convert(request(tmp_path, out=out))  # its own by now
    with pytest.raises(SpecError, match="--force: only with --out"):
        run_convert(request(tmp_path, force=True))


def test_every_warning_of_the_terminal_is_in_the_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "python3 -m openrlhf.cli.train_ppo_ray --init_kl_coef 0.01 --kl_target 6 --n_samples_per_prompt 8\n"
    path = put(tmp_path, "a.sh", text)
    run_convert(ConvertRequest(path, "openrlhf", "json"))
    out, err = capfd.readouterr()
    told = [line.removeprefix("warning: ") for line in err.splitlines()]
    assert any("6 nats per token is far above" in line for line in told)
    assert json.loads(out)["warnings"] == told

"""What ``kltune audit`` refuses, and what it leaves behind; the models are faked here."""

from __future__ import annotations

import json
from pathlib import Path

import fake_audit
import numpy as np
import pytest
from spec_files import minimal, write

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.audit import AuditRequest, Kind, Subject, run_audit


def fake_subject(request: AuditRequest, kind: Kind) -> Subject:
    draw = np.random.default_rng(0)
    blocks = [
        fake_audit.FakeBlock(draw.choice(4, size=32, p=fake_audit.POLICY_P), np.arange(32) // 4 + i)
        for i in range(8)
    ]
    return Subject("small", fake_audit.question(8, policy=kind), iter(blocks))


def study(folder: Path) -> Path:
    (folder / "trials" / "00003").mkdir(parents=True)
    (folder / "trials" / "00011").mkdir()
    (folder / "resolved.json").write_text("{}", encoding="utf-8")
    return folder


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return folder


def test_json_goes_to_stdout_and_files_to_the_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = AuditRequest(write(tmp_path, minimal()), out=tmp_path / "out", as_json=True)
    assert run_audit(request, fake_subject) is ExitCode.DONE
    shown = capfd.readouterr()
    facts = json.loads(shown.out, parse_constant=pytest.fail)
    assert facts["schema"] == 1
    assert facts["pair"]["policy"] == "spec"
    assert json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8")) == facts
    assert (tmp_path / "out" / "audit.png").read_bytes().startswith(b"\x89PNG")
    assert "probed 8 of 8 blocks" in shown.err


def test_without_json_stdout_is_the_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_audit(AuditRequest(write(tmp_path, minimal())), fake_subject) is ExitCode.DONE
    shown = capfd.readouterr()
    assert "k1-reward" in shown.out
    assert "nats/token" in shown.out
    assert (tmp_path / "studies" / "audits" / "small" / "audit.png").is_file()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"trial": 3}, "--trial: only with a study folder"),
        ({"checkpoint": "last"}, "--checkpoint: only with a study folder"),
        ({"reference": Path("x")}, "--reference: only with a model folder"),
    ],
)
def test_flags_that_do_not_fit_a_spec_are_refused(
    tmp_path: Path, fields: dict[str, object], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        AuditRequest(write(tmp_path, minimal()), **fields).kind()  # type: ignore[arg-type]


def test_a_study_needs_a_trial_and_says_which_it_has(tmp_path: Path) -> None:
    folder = study(tmp_path / "study")
    with pytest.raises(SpecError, match="It has: 3, 11"):
        AuditRequest(folder).kind()
    assert AuditRequest(folder, trial=3).kind() == "trial"
    with pytest.raises(SpecError, match="--steps: only with a spec"):
        AuditRequest(folder, trial=3, steps=5).kind()


def test_a_model_needs_a_reference_and_prompts_and_both_are_told_at_once(tmp_path: Path) -> None:
    folder = model(tmp_path / "a")
    with pytest.raises(SpecError, match=r"--reference: .*; --prompts: "):
        AuditRequest(folder).kind()
    both = AuditRequest(folder, reference=folder, prompts=tmp_path / "p.txt")
    assert both.kind() == "models"


def test_what_is_none_of_these_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file or folder"):
        AuditRequest(tmp_path / "gone.yaml").kind()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match="can't be audited"):
        AuditRequest(tmp_path / "empty").kind()


def test_a_bad_spec_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    path = write(tmp_path, {**minimal(), "budget": {"trials": 0}})

    def never(request: AuditRequest, kind: Kind) -> Subject:
        raise AssertionError

    with pytest.raises(SpecError, match=r"budget\.trials"):
        run_audit(AuditRequest(path), never)
    gone = write(tmp_path, {**minimal(), "model": {"base": "./gone"}})
    with pytest.raises(SpecError, match=r"model\.base"):
        run_audit(AuditRequest(gone), never)


@pytest.mark.parametrize("out", ["taken", "taken/below"])
def test_a_place_that_can_not_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, out: str
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    request = AuditRequest(write(tmp_path, minimal()), out=tmp_path / out)
    with pytest.raises(SpecError, match=r"--out: .* can't be written to"):
        run_audit(request, lambda *_: pytest.fail("was computed"))


def test_an_answer_is_shown_even_where_it_can_not_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    request = AuditRequest(write(tmp_path, minimal()), out=folder)

    def taken_meanwhile(request: AuditRequest, kind: Kind) -> Subject:
        folder.write_text("a file", encoding="utf-8")
        return fake_subject(request, kind)

    with pytest.raises(RunError, match="the audit can't be written there"):
        run_audit(request, taken_meanwhile)
    assert "k1-reward" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["nonexist", "p.txt"])
def test_a_reference_that_is_no_model_folder_is_refused_before_anything_is_loaded(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "p.txt").write_text("question\n", encoding="utf-8")
    request = AuditRequest(
        model(tmp_path / "a"), reference=tmp_path / name, prompts=tmp_path / "p.txt"
    )
    with pytest.raises(SpecError) as caught:
        run_audit(request, fake_subject)
    told = f"--reference: {tmp_path / name} is no model folder (one that holds a config.json)"
    assert str(caught.value) == told
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_file_that_is_no_yaml_is_said_to_be_no_spec(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# A: title: `of` *a* page\n\n- **x**: y: z\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"README\.md: is no spec \(a YAML file\); give a spec"):
        run_audit(AuditRequest(path), fake_subject)
    text = write(tmp_path, minimal()).rename(tmp_path / "spec.txt")
    assert run_audit(AuditRequest(text, out=tmp_path / "out"), fake_subject) is ExitCode.DONE
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: b: c\n", encoding="utf-8")
    with pytest.raises(SpecError, match="line 1"):
        run_audit(AuditRequest(broken), fake_subject)


def test_an_older_audit_of_the_same_name_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    audits, path = tmp_path / "studies" / "audits", write(tmp_path, minimal())
    run_audit(AuditRequest(path), fake_subject)
    first = (audits / "small" / "audit.json").read_bytes()
    run_audit(AuditRequest(path), fake_subject)
    run_audit(AuditRequest(path), fake_subject)
    assert (audits / "small" / "audit.json").read_bytes() == first
    assert sorted(p.name for p in audits.iterdir()) == ["small", "small-2", "small-3"]
    assert "wrote studies/audits/small-3/audit.json" in capfd.readouterr().err


def test_an_audit_in_a_folder_that_was_asked_for_is_said_to_be_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = AuditRequest(write(tmp_path, minimal()), out=tmp_path / "out")
    run_audit(request, fake_subject)
    assert "replaced" not in capfd.readouterr().err
    run_audit(request, fake_subject)
    assert f"replaced {tmp_path / 'out' / 'audit.json'}" in capfd.readouterr().err

from __future__ import annotations

import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from kltune.errors import RunError, SpecError
from kltune.launch.put import put, refused


def test_a_file_is_written_and_said_to_be_replaced_where_there_was_one(tmp_path: Path) -> None:
    out = tmp_path / "there"
    assert refused(out) == []
    assert put(out, "one") == "wrote"
    assert refused(out, force=True) == []
    assert put(out, "two", force=True) == "replaced"
    assert out.read_text(encoding="utf-8") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    out, read = tmp_path / "pipe", list[str]()
    os.mkfifo(out)
    assert refused(out) == []
    reader = threading.Thread(target=lambda: read.append(out.read_text(encoding="utf-8")))
    reader.start()
    assert put(out, "text") == "wrote"
    reader.join(timeout=10)
    assert read == ["text"]
    assert stat.S_ISFIFO(out.stat().st_mode)


def test_a_device_is_written_to() -> None:
    null = Path(os.devnull)
    assert refused(null) == []
    assert put(null, "text") == "wrote"
    assert null.is_char_device()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("old", encoding="utf-8")
    link.symlink_to(file)
    assert put(link, "new", force=True) == "replaced"
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"


def test_a_folder_and_an_absent_folder_are_refused(tmp_path: Path) -> None:
    (text,) = refused(tmp_path)
    assert "give the path of a file" in text
    (text,) = refused(tmp_path / "absent" / "file")
    assert f"there is no folder {tmp_path / 'absent'}" in text
    assert not (tmp_path / "absent").exists()


def test_a_disk_that_fails_is_an_error_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="can't be written"):
        put(tmp_path / "absent" / "file", "text")


HEADS = (
    "# verl 0.9.0, exported by kltune from study kitchen, trial 11 (recommended)\nactor: 1\n",
    "#!/usr/bin/env bash\n# openrlhf 0.11.0, converted by kltune from a.py (trl 1.16.0): x\n",
    "# nemo-rl 0.7.0, exported by kltune from study a, trial 0\n",
    '"""Tripwire for a run of trl 1.0: limits of trial 1, study a (b).\n\nMade by `kltune export --to tripwire`',
    '{"schema": 1, "source": {"study": "kitchen", "trial": 1}}\n',
    "",
)


@pytest.mark.parametrize("head", HEADS)
def test_an_earlier_output_is_replaced_without_a_word(tmp_path: Path, head: str) -> None:
    out = tmp_path / "out"
    put(out, head)
    assert refused(out) == []
    assert put(out, "new") == "replaced"


@pytest.mark.parametrize(
    "text", ["import torch\n", '{"schema": 1, "best": {}}', "# my own notes\n" + HEADS[0], "\n"]
)
def test_a_file_of_someone_else_is_replaced_by_force_alone(tmp_path: Path, text: str) -> None:
    out, link = tmp_path / "mine.py", tmp_path / "link"
    out.write_text(text, encoding="utf-8")
    link.symlink_to(out)
    for path in (out, link):
        (problem,) = refused(path)
        assert problem == f"--out: {path} is there and kltune did not write it; --force replaces it"
        with pytest.raises(SpecError, match="--force replaces it"):
            put(path, "new")
        assert out.read_text(encoding="utf-8") == text
        assert refused(path, force=True) == []
    assert put(out, "new", force=True) == "replaced"


@pytest.mark.parametrize(
    "name",
    [
        "study.db",
        "spec.yaml",
        "report.html",
        "trials/00001/metrics.jsonl",
        "trials/00001/config.json",
    ],
)
def test_a_study_s_own_file_is_never_replaced_not_even_by_force(tmp_path: Path, name: str) -> None:
    (tmp_path / "resolved.json").write_text("{}", encoding="utf-8")
    own = tmp_path / name
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("the record", encoding="utf-8")
    elsewhere = tmp_path.parent / f"{tmp_path.name}.link"
    elsewhere.symlink_to(own)
    for path in (own, elsewhere):
        for force in (False, True):
            assert "belongs to the study itself" in refused(path, force=force)[0]
            with pytest.raises(SpecError, match="belongs to the study itself"):
                put(path, "new", force=force)
    assert own.read_text(encoding="utf-8") == "the record"
    # Where it is not there yet a later report would replace what was put in its place.
    assert refused(tmp_path / "report.md")
    assert refused(tmp_path / "verl.yaml") == []


@pytest.mark.parametrize("head", [head for head in HEADS if head])
def test_an_output_that_was_edited_since_is_kept_but_by_force(tmp_path: Path, head: str) -> None:
    out = tmp_path / "out"
    put(out, head)
    written = out.read_bytes()
    places = (0, len(head) // 2, len(head), len(written) // 2 + len(head) // 2, len(written) - 3)
    edits = [written[:k] + b"1" + written[k:] for k in places]
    edits += [written + b"mine: 1\n", head.encode()]  # a line below; one without a digest
    for text in edits:
        out.write_bytes(text)
        (said,) = refused(out)
        kept = r"(was edited since kltune wrote it|kltune did not write it); --force"
        assert re.search(kept, said)
        with pytest.raises(SpecError, match=kept):
            put(out, "new")
        assert out.read_bytes() == text
        assert refused(out, force=True) == []
    out.write_bytes(written)
    assert put(out, head) == "replaced"
    assert out.read_bytes() == written


def test_json_with_a_digest_is_json_with_the_same_facts(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    put(out, '{"schema": 1, "source": {"study": "k"}}\n')
    facts = json.loads(out.read_text(encoding="utf-8"))
    assert len(facts.pop("sha256_of_the_rest")) == 64
    assert facts == {"schema": 1, "source": {"study": "k"}}


def test_an_edited_export_in_a_studys_folder_is_its_owners(tmp_path: Path) -> None:
    (tmp_path / "study.db").touch()
    out = tmp_path / "verl.yaml"
    put(out, HEADS[0])
    out.write_text(f"{HEADS[0]}mine: 1\n", encoding="utf-8")
    (said,) = refused(out)
    assert "was edited since" in said
    assert put(out, HEADS[0], force=True) == "replaced"

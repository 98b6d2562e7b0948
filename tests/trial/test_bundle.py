from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.trial.bundle import Version, fetch, send, snapshot, versions_of
from kltune.trial.remote import Remote, RemoteTroubleError


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(f"file://{tmp_path}/far")


def source(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "source"
    (folder / "checkpoints" / "last").mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text(text)
    weights = folder / "checkpoints" / "last" / "w"
    weights.unlink(missing_ok=True)
    weights.write_text(f"weights {text}")
    return folder


NAMES = ("metrics.jsonl", "checkpoints/last/w")


def put(remote: Remote, tmp_path: Path, text: str, attempt: int = 1) -> Version:
    shot = tmp_path / "shot"
    return send(remote, "t", attempt, shot, snapshot(source(tmp_path, text), NAMES, shot))


def content(remote: Remote, tmp_path: Path) -> str:
    assert fetch(remote, "t", tmp_path / "here") is not None
    here = tmp_path / "here"
    assert sorted(p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file()) == sorted(
        NAMES
    )
    text = (here / "metrics.jsonl").read_text()
    assert (here / "checkpoints" / "last" / "w").read_text() == f"weights {text}"
    return text


def test_a_snapshot_stays_while_the_folder_goes_on(tmp_path: Path) -> None:
    folder, shot = source(tmp_path, "a"), tmp_path / "shot"
    files = snapshot(folder, (*NAMES, "gone"), shot)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("b")
    (folder / "checkpoints" / "last" / "w").unlink()
    assert sorted(files) == sorted(NAMES)
    assert (shot / "metrics.jsonl").read_text() == "a"
    assert (shot / "checkpoints" / "last" / "w").read_text() == "weights a"


def test_the_newest_version_of_the_highest_attempt_counts(remote: Remote, tmp_path: Path) -> None:
    assert fetch(remote, "t", tmp_path / "here") is None
    put(remote, tmp_path, "a")
    assert put(remote, tmp_path, "b") == Version(1, 2)
    assert content(remote, tmp_path) == "b"
    assert put(remote, tmp_path, "c", attempt=2) == Version(2, 1)
    put(remote, tmp_path, "late", attempt=1)  # a member that was thought dead
    assert content(remote, tmp_path) == "c"


def test_a_version_whose_sending_was_cut_is_never_taken(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote, tmp_path, "a")
    sent = Remote.send
    for cut in range(3):  # before the first file, the second, and the manifest
        left = [cut]

        def stops(self: Remote, source: Path, name: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise RemoteTroubleError("gone")
            left[0] -= 1
            sent(self, source, name)

        with monkeypatch.context() as patch:
            patch.setattr(Remote, "send", stops)
            with pytest.raises(RemoteTroubleError):
                put(remote, tmp_path, f"b{cut}")
        assert content(remote, tmp_path) == "a"
    put(remote, tmp_path, "c")
    assert content(remote, tmp_path) == "c"


def test_what_is_damaged_there_makes_way_for_the_version_before(
    remote: Remote, tmp_path: Path
) -> None:
    put(remote, tmp_path, "a")
    put(remote, tmp_path, "b")
    far = tmp_path / "far" / "t"
    files = json.loads((far / "00001-000002.json").read_text())["files"]
    (far / "00001" / files["metrics.jsonl"]).write_text("x")
    assert content(remote, tmp_path) == "a"
    (far / "00001-000001.json").write_text("{")
    with pytest.raises(RemoteTroubleError):
        fetch(remote, "t", tmp_path / "here")


def test_a_name_that_leads_out_of_the_folder_is_refused(remote: Remote, tmp_path: Path) -> None:
    put(remote, tmp_path, "a")
    manifest = tmp_path / "far" / "t" / "00001-000001.json"
    facts = json.loads(manifest.read_text())
    digest = facts["files"]["metrics.jsonl"]
    for name in ("../evil", "a/../../evil", "/etc/evil", ""):
        manifest.write_text(json.dumps({**facts, "files": {name: digest}}))
        with pytest.raises(RemoteTroubleError, match="outside its folder"):
            fetch(remote, "t", tmp_path / "here")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "digest",
    [
        "../00001-000001.json",
        "/etc/passwd",
        "",
        "a" * 39,
        "g" * 40,
        "a" * 40 + "\n",
        7,
        None,
        ["a"],
    ],
)
def test_a_digest_of_another_form_is_refused_before_a_path_is_made_of_it(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: object
) -> None:
    put(remote, tmp_path, "a")
    manifest = tmp_path / "far" / "t" / "00001-000001.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**facts, "files": {"metrics.jsonl": digest}}))
    asked: list[str] = []
    fetched = Remote.fetch

    def fetches(self: Remote, name: str, target: Path, most: int | None = None) -> None:
        asked.append(name)
        fetched(self, name, target, most)

    monkeypatch.setattr(Remote, "fetch", fetches)
    with pytest.raises(RemoteTroubleError, match=r"metrics\.jsonl has no digest"):
        fetch(remote, "t", tmp_path / "here")
    assert asked == ["t/00001-000001.json"]


def test_a_manifest_or_file_of_a_huge_size_is_refused(remote: Remote, tmp_path: Path) -> None:
    put(remote, tmp_path, "a")
    far = tmp_path / "far" / "t"
    manifest = far / "00001-000001.json"
    facts = json.loads(manifest.read_text())
    with (far / "00001" / facts["files"]["metrics.jsonl"]).open("wb") as file:
        file.truncate(1 << 42)  # 4 TiB, which take no room
    with pytest.raises(RemoteTroubleError, match=r"has 4,398,046,511,104 bytes \(at most"):
        fetch(remote, "t", tmp_path / "here")
    manifest.write_text(json.dumps({"files": {f"f{i}": "a" * 40 for i in range(1001)}}))
    with pytest.raises(RemoteTroubleError, match=r"lists 1,001 files \(at most 1,000\)"):
        fetch(remote, "t", tmp_path / "here")
    with manifest.open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(RemoteTroubleError, match=r"000001\.json: has 2,097,152 bytes"):
        fetch(remote, "t", tmp_path / "here")


def test_nothing_there_grows_with_versions_or_attempts(remote: Remote, tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        for count in range(6):
            put(remote, tmp_path, f"{attempt} {count}", attempt)
    assert versions_of(remote, "t") == [Version(3, 5), Version(3, 6)]
    assert len(list((tmp_path / "far").rglob("*"))) <= 2 + 2 + 2 * len(NAMES)
    assert content(remote, tmp_path) == "3 5"

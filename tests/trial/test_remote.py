from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.trial.remote import Remote, RemoteTroubleError, refuse_secret


@pytest.fixture(params=["file", "memory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    if request.param == "file":
        return Remote(f"file://{tmp_path}/far")
    return Remote(f"memory://{uuid.uuid4().hex}/far")


def test_a_file_goes_there_and_comes_back(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1" * 1000)
    assert remote.names("a") == []
    remote.send(tmp_path / "one", "a/b/x")
    remote.send(tmp_path / "one", "a/y")
    assert remote.names("a") == ["b", "y"]
    remote.fetch("a/b/x", tmp_path / "deep" / "two")
    assert (tmp_path / "deep" / "two").read_bytes() == b"1" * 1000
    (tmp_path / "one").write_bytes(b"2")
    remote.send(tmp_path / "one", "a/y")
    remote.fetch("a/y", tmp_path / "three")
    assert (tmp_path / "three").read_bytes() == b"2"
    remote.drop("a/b")
    remote.drop("a/b")
    assert remote.names("a") == ["y"]


def test_trouble_is_one_kind_of_error(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(RemoteTroubleError, match="a/x: FileNotFoundError"):
        remote.fetch("a/x", tmp_path / "x")


@pytest.mark.parametrize(
    "address",
    ["s3://key:hidden@bucket/x", "https://user:hidden@host/x", "ftp://host/x?password=hidden"],
)
def test_a_secret_in_the_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(SpecError, match="holds a secret") as caught:
        refuse_secret(address)
    assert "hidden" not in str(caught.value)


def test_what_is_no_address_or_unknown_is_refused() -> None:
    with pytest.raises(SpecError, match="must be an address like"):
        Remote("bucket/folder")
    with pytest.raises(SpecError, match="Protocol not known"):
        Remote("zzz://bucket")


def test_a_missing_package_is_named() -> None:
    pytest.importorskip("fsspec")
    try:
        import s3fs  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        with pytest.raises(EnvironmentMissingError, match="s3fs"):
            Remote("s3://bucket/x")
    else:
        pytest.skip("s3fs is installed here")

"""An fsspec address in, files that are put there and fetched from there out; every trouble is one kind of error.

``file://``, ``memory://``, and ``s3://``, ``gs://``, ``abfs://`` and the like by the package that fsspec names.
Credentials come from where that package looks for them, never from the address.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.masking import redact


class RemoteTroubleError(Exception):
    """What the far side, or the way there, said; it may pass."""


def refuse_secret(address: str) -> None:
    """See to it that an address holds no password: it stands in specs, logs and reports.

    Raises:
        SpecError: it does, or it is no address.
    """
    if "://" not in address:
        raise SpecError(
            f"storage.record: must be an address like s3://bucket/folder (got {redact(address)!r})"
        )
    try:
        parts = urllib.parse.urlsplit(address)
        secret = parts.password
    except ValueError:
        raise SpecError("storage.record: not a valid address") from None
    if secret is not None or redact(address) != address:
        raise SpecError(
            f"storage.record: holds a secret, which others would read here ({redact(address)}); leave it out: the "
            "package behind the address finds credentials in its own files and environment variables"
        )


class Remote:
    """A folder at an fsspec address."""

    def __init__(self, address: str) -> None:
        """Find the package for the address; nothing is sent yet.

        Raises:
            SpecError: nobody knows such addresses, or it holds a secret.
            EnvironmentMissingError: the package for it is not installed.
        """
        refuse_secret(address)
        self.shown = redact(address)
        try:
            self._fs: Any
            self._fs, self._root = fsspec.core.url_to_fs(address)
        except ImportError as error:
            raise EnvironmentMissingError(
                f"storage.record: {self.shown}: {redact(str(error))}"
            ) from error
        except ValueError as error:
            raise SpecError(f"storage.record: {self.shown}: {redact(str(error))}") from error
        self._root = str(self._root).rstrip("/")
        self._is_local = "file" in self._fs.protocol or "local" in self._fs.protocol

    def send(self, source: Path, name: str) -> None:
        """Put a file there under ``name``; whoever reads sees nothing or the whole.

        Raises:
            RemoteTroubleError: it could not be sent.
        """
        with self._trouble(name):
            place = self._place(name)
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            if (
                self._is_local
            ):  # object stores show an object when it is whole; a file system needs a rename
                self._fs.put_file(str(source), f"{place}.part")
                self._fs.mv(f"{place}.part", place)
            else:
                self._fs.put_file(str(source), place)

    def fetch(self, name: str, target: Path, most: int | None = None) -> None:
        """Bring the file ``name`` to ``target``, if it has at most ``most`` bytes.

        Raises:
            RemoteTroubleError: it could not be brought, is not there, or is larger.
        """
        with self._trouble(name):
            if most is not None and (size := self._fs.size(self._place(name)) or 0) > most:
                raise RemoteTroubleError(f"has {size:,} bytes (at most {most:,} are taken)")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(self._place(name), str(target))

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder there, sorted; nothing where there is no such folder.

        Raises:
            RemoteTroubleError: nobody could say.
        """
        with self._trouble(folder):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._place(folder), detail=False)
            except FileNotFoundError:
                return []
            names = {str(path).rstrip("/").rpartition("/")[2] for path in found}
            return sorted(name for name in names if not name.endswith(".part"))

    def drop(self, name: str) -> None:
        """Remove a file or a folder; what is not there is gone already.

        Raises:
            RemoteTroubleError: it could not be removed.
        """
        with self._trouble(name):
            try:
                self._fs.rm(self._place(name), recursive=True)
            except FileNotFoundError:
                return

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextmanager
    def _trouble(self, name: str) -> Generator[None]:
        # Packages for storage raise classes of their own, whatever they are.
        try:
            yield
        except RemoteTroubleError as error:
            raise RemoteTroubleError(f"{self.shown}/{name}: {error}") from None
        except Exception as error:
            words = redact(f"{type(error).__name__}: {error}")
            raise RemoteTroubleError(f"{self.shown}/{name}: {words[:300]}") from error

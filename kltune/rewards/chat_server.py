"""Messages in, a reply and its tokens out, from an OpenAI-compatible server; with retries, without redirects."""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, Any, Final

from kltune.errors import EnvironmentMissingError, ServiceError
from kltune.masking import redact
from kltune.rewards.replies import Messages
from kltune.spec.judge import JudgeSpec

LOG = logging.getLogger(__name__)

_BUSY: Final = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_UNFIT: Final = (400, 413, 422)
_MAX_BYTES: Final = 4 << 20
_MAX_WAIT: Final = 60.0
_BYTES_A_TOKEN: Final = 4
"""Where the server doesn't count tokens."""
_QUOTED: Final = 80
"""Characters that are shown of an answer that is no chat completion."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply and what it took."""

    text: str
    tokens_in: int
    tokens_out: int


class UnfitRequestError(ServiceError):
    """The server won't take this very request (too long, for one)."""


class _BusyError(Exception):
    """Worth another attempt: ``(what happened, seconds that the server asks to wait)``."""


class _StrangeError(Exception):
    """An answer that is no chat completion: ``(its first characters,)``."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to another address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:  # fmt: skip
        """Follow none: urllib then raises the answer as an error."""
        del req, fp, code, msg, headers, newurl


class ChatServer:
    """The server of one judge."""

    def __init__(
        self, spec: JudgeSpec, field: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Nothing is sent yet.

        Raises:
            EnvironmentMissingError: the variable with the key is not set.
        """
        self.spec, self.field, self._sleep = spec, field, sleep
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._key()

    def ask(self, messages: Messages) -> Reply:
        """Send one request, again and again where the server is busy or out of reach; each wait is said.

        An answer that is no chat completion is worth one more attempt: the address is probably wrong.

        Raises:
            UnfitRequestError: the server refuses this request.
            ServiceError: it can't be used: out of reach, a wrong key, no such model.
        """
        happened, waited, is_strange = "", 0.0, False
        for attempt in range(1 + self.spec.retries):
            try:
                return self._once(messages)
            except _StrangeError as strange:
                if is_strange or attempt == self.spec.retries:
                    raise ServiceError(
                        f"{self.field}: what answers at {self.spec.url} is no chat server: its answer begins "
                        f"{strange.args[0]!r}; check url (up to the version, like http://localhost:8000/v1)"
                    ) from None
                is_strange, (happened, asked) = True, ("no chat completion", 0.0)
            except _BusyError as busy:
                happened, asked = busy.args
            if attempt < self.spec.retries:
                waited += self._wait(attempt, happened, asked)
        long = f", after {waited:.0f} s of waiting" if waited else ""
        raise ServiceError(
            f"{self.field}: the judge at {self.spec.url} could not be used in {1 + self.spec.retries} attempt(s)"
            f"{long} ({happened}); see to it and run the same command again: its answers so far are kept"
        )

    def _wait(self, attempt: int, happened: str, asked: float) -> float:
        """Say so and wait; seconds."""
        seconds = min(_MAX_WAIT, max(2.0**attempt, asked))
        LOG.warning(
            "%s: the judge gave no reply (%s); try %d of %d in %.0f s",
            self.field, happened, attempt + 2, 1 + self.spec.retries, seconds,
        )  # fmt: skip
        self._sleep(seconds)
        return seconds

    def _once(self, messages: Messages) -> Reply:
        body = json.dumps(
            {
                "model": self.spec.judge,
                "messages": messages,
                "temperature": self.spec.temperature,
                "max_tokens": self.spec.max_tokens,
            }
        ).encode()
        key = self._key()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self.spec.url}/chat/completions", data=body, headers=headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self.spec.timeout) as answer:
                raw = _read(answer, time.monotonic() + self.spec.timeout)
            return self._read_reply(raw, body)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except TimeoutError:
            raise _BusyError(f"no reply within {self.spec.timeout:g} s", 0.0) from None
        except urllib.error.URLError as error:
            raise _BusyError(redact(f"{error.reason}"), 0.0) from None
        except (OSError, http.client.HTTPException) as error:
            raise _BusyError(redact(f"{type(error).__name__}: {error}"), 0.0) from None

    def _read_reply(self, raw: bytes, body: bytes) -> Reply:
        try:
            return _reply(json.loads(raw), body)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            text = redact(raw[: 50 * _QUOTED].decode(errors="replace"))
            raise _StrangeError(" ".join(text.split())[:_QUOTED]) from None

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        said = self._said(error)
        if error.code in _BUSY:
            asked = _wait_of(error.headers)
            asks = f"; it asks to wait {asked:.0f} s" if asked else ""
            return _BusyError(f"HTTP {error.code}: {said}{asks}", asked)
        advice = {
            401: "; check the key in the variable that key_env names",
            403: "; check the key in the variable that key_env names",
            404: "; check url and the name of the model",
        }.get(error.code, "")
        kind = UnfitRequestError if error.code in _UNFIT else ServiceError
        return kind(
            f"{self.field}: the judge at {self.spec.url} refused the request for {self.spec.judge!r} "
            f"(HTTP {error.code}: {said}){advice}"
        )

    def _said(self, error: urllib.error.HTTPError) -> str:
        try:
            raw = error.read(_MAX_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            raw = ""
        finally:
            error.close()
        try:
            text = str(json.loads(raw)["error"]["message"])
        except (ValueError, LookupError, TypeError):
            text = raw
        # Some servers quote the key that they refuse.
        shown = " ".join(redact(text).split())
        return shown[:200] or str(error.reason)

    def _key(self) -> str | None:
        name = self.spec.key_env
        if name is None:
            return None
        key = os.environ.get(name, "").strip()
        if not key:
            raise EnvironmentMissingError(
                f"{self.field}.key_env: the environment variable {name} is not set; it should hold the judge's key"
            )
        return key


def _read(answer: http.client.HTTPResponse, until: float) -> bytes:
    """The whole body; a server that dribbles is given no longer than one that is silent."""
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if time.monotonic() > until:
            raise TimeoutError
        if size > _MAX_BYTES:
            raise _StrangeError(f"more than {_MAX_BYTES >> 20} MiB")
    return b"".join(parts)


def _reply(answer: Mapping[str, Any], body: bytes) -> Reply:
    text = answer["choices"][0]["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError("content is no text")
    usage = answer.get("usage") or {}
    return Reply(
        text,
        int(usage.get("prompt_tokens") or len(body) // _BYTES_A_TOKEN),
        int(usage.get("completion_tokens") or len(text.encode()) // _BYTES_A_TOKEN),
    )


def _wait_of(headers: Message | None) -> float:
    """Seconds that an answer asks to wait, whether it gives them or a date; 0: it asks nothing."""
    given = str((headers or {}).get("Retry-After") or "0")
    try:
        seconds = float(given)
    except ValueError:
        seconds = _until(given)
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _until(date: str) -> float:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    aware = then if then.tzinfo is not None else then.replace(tzinfo=UTC)  # HTTP dates are GMT
    return (aware - datetime.now(UTC)).total_seconds()

"""Text in, the same text without its secrets out; and the places where a process's words pass through that.

Two strengths. `redact` is for what a person is told (messages, logs, tracebacks, addresses): it knows secrets
by their value in the environment and by their form. `hide_known` is for data that hold model text (records,
tables, reports): by value alone, so that a prompt with ``@`` or ``?key=`` in it stays as it is.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TextIO
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK: Final = "***"
FURTHER: Final = "KLTUNE_SECRETS"
"""Environment variable: names of further variables whose values are secret, with commas between."""

_SHORTEST: Final = 4
_SHORTEST_IN_DATA: Final = 8
"""A shorter password may be a word that a prompt holds as well."""
_ALONE_BELOW: Final = 12
"""A shorter one of letters and digits is only masked where it stands alone: `cook` is in many words."""
_WORDS: Final = frozenset({"true", "false", "none", "null", "auto", "yes"})
_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|PASS|SECRET|KEY|APIKEY|KEY_ID|AUTH|CREDENTIALS?|CONNECTION_STRING)$"
    r"|^(?:PGPASSWORD|MYSQL_PWD)$"
)
_USER_INFO: Final = re.compile(r"://[^\s/@:]*:(?!\d+(?:[/?#\s]|$))(?P<word>.*)@(?=[^@]*$)")

_QUOTE: Final = r"""['"](?![,:}\])\s;]|$)"""
"""A quotation mark that ends nothing: one inside a password."""
_SCHEME: Final = r"(\b(?!(?:file|sqlite):)[A-Za-z][\w+.-]*:/{1,2})"
"""With one slash too: that is what is left of an address that was taken for a path."""
_ADDRESS: Final = re.compile(rf"{_SCHEME}(?:[^\s'\"]|{_QUOTE})*(?<!/)@")
_SPACED: Final = re.compile(
    rf"{_SCHEME}[^\s/@:'\"\[]*:(?!\d+(?:[/?#\s'\",;)\]}}]|$))[^\n'\"@/]*\s[^\n'\"@/]*@"
)
"""User and a password with a space in it; a port is none."""
_SECRET_WORD: Final = (
    r"(?:token|secret|password|passwd|pwd|passphrase|key|sig|signature|credential)"
)
_QUERY_VALUE: Final = re.compile(
    rf"[?&]([^=&\s]*{_SECRET_WORD}[^=&\s]*=[^&\s#]+)", flags=re.IGNORECASE
)
_QUERY: Final = re.compile(
    rf"([?&;][^=&\s]*{_SECRET_WORD}[^=&\s]*=)[^&\s'\")]+", flags=re.IGNORECASE
)
_PAIR: Final = re.compile(
    r"(\b\w*(?:password|passwd|secret|api_?key|access_?key|accountkey|pwd(?=%3D))(?:=|%3D))(?!\*)[^\s&;,'\")]+",
    flags=re.IGNORECASE,
)
_MEMBER: Final = re.compile(
    r"(['\"]\w*(?:password|passwd|secret|token|api_?key|authorization)['\"]\s*:\s*)(b?(['\"])).*?\3",
    flags=re.IGNORECASE,
)
_HEADER: Final = re.compile(
    r"(\bAuthorization\b['\"]?\s*[:=]\s*['\"]?\w+\s+)[^\s'\"]+|(\bBearer\s+)(?=\S*\d)[\w.~+/=-]{16,}",
    flags=re.IGNORECASE,
)
_KNOWN_SHAPE: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16})\b"
)


def redact(text: str) -> str:
    """Hide secrets in words for a person: those of the environment, and whatever has the form of one.

    Forms: user-info and secret query values of addresses, ``password=...``, authorisation headers, and
    tokens of the hub and of well-known services.
    """
    text = _hide(text, _SHORTEST)
    if ":/" in text:
        text = _ADDRESS.sub(rf"\1{MASK}@", _SPACED.sub(rf"\1{MASK}@", text))
    if "=" in text:
        text = _QUERY.sub(rf"\1{MASK}", text)
        text = _PAIR.sub(rf"\1{MASK}", text)
    text = _MEMBER.sub(rf"\1\3{MASK}\3", text)
    text = _HEADER.sub(lambda found: f"{found[1] or found[2]}{MASK}", text)
    return _KNOWN_SHAPE.sub(MASK, text)


def hide_known(text: str) -> str:
    """Hide the secrets of the environment by value, of 8 characters or more, and nothing else."""
    return _hide(text, _SHORTEST_IN_DATA)


def name_secret(variable: str) -> None:
    """Have the value of an environment variable hidden from now on, here and in processes started from here."""
    known = os.environ.get(FURTHER, "")
    if variable not in known.split(","):
        os.environ[FURTHER] = ",".join(filter(None, (known, variable)))


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values among environment variables, longest first: by name, and the passwords of addresses."""
    further = environ.get(FURTHER, "").split(",")
    found: set[str] = set()
    for name, value in environ.items():
        if _SECRET_NAME.search(name) or name in further:
            found.add(value.strip())
        if "://" in value:
            found.update(_of_address(value))
    kept = {word for word in found if len(word) >= _SHORTEST and word.lower() not in _WORDS}
    return tuple(sorted(kept, key=lambda word: (-len(word), word)))


def traceback_of(error: BaseException) -> str:
    """The error and all that led to it, as Python prints it, without secrets."""
    return redact("".join(traceback.format_exception(error)))


def mask_process(words: Iterable[TextIO] = (), data: Iterable[TextIO] = ()) -> None:
    """Have log records, warnings and what threads die of masked in this process, and what is written to streams.

    ``words``: streams for a person, through `redact`; ``data``: those for results, through `hide_known`.
    For processes that are kltune's own: a program that uses kltune as a library keeps its own ways.
    """
    make = logging.getLogRecordFactory()
    if getattr(make, "masks", False):
        return
    logging.setLogRecordFactory(_masking(make))
    shown = warnings.formatwarning
    # typeshed gives its signature for calls by name; the standard library calls it so.
    warnings.formatwarning = lambda *args, **named: redact(shown(*args, **named))
    threading.excepthook = _tell_thread
    sys.unraisablehook = _tell_unraisable
    for stream in words:
        _pass_through(stream, redact)
    for stream in data:
        _pass_through(stream, hide_known)


def mask_record(record: logging.LogRecord) -> logging.LogRecord:
    """The record, whose words and traceback are masked already; whatever handler comes to it finds no more."""
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError, IndexError):
        text = f"{record.msg} {record.args!r}"
    record.msg, record.args = redact(text), None
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = traceback_of(record.exc_info[1]).rstrip("\n")
        record.exc_info = None
    return record


def _masking(make: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def masked(*args: Any, **named: Any) -> logging.LogRecord:
        return mask_record(make(*args, **named))

    masked.masks = True  # pyright: ignore[reportFunctionMemberAccess]
    return masked


def _pass_through(stream: TextIO, by: Callable[[str], str]) -> None:
    """Mask what is written. The stream stays the same object, since others hold it: handlers, consoles."""
    write = stream.write

    def masked(text: str) -> int:
        write(by(text))
        return len(text)

    stream.write = masked


def _tell_thread(died: threading.ExceptHookArgs) -> None:
    if died.exc_value is None or isinstance(died.exc_value, SystemExit):
        return
    name = "a thread" if died.thread is None else died.thread.name
    sys.stderr.write(f"Exception in thread {name}:\n{traceback_of(died.exc_value)}")


def _tell_unraisable(lost: sys.UnraisableHookArgs) -> None:
    if lost.exc_value is not None:
        sys.stderr.write(f"Exception ignored:\n{traceback_of(lost.exc_value)}")


def _hide(text: str, shortest: int) -> str:
    known = tuple(word for word in secrets_of(os.environ) if len(word) >= shortest)
    if not known:
        return text
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    forms, pattern = _finder(known, user)
    # Looking for each is faster than the pattern, and nearly every text holds none.
    return pattern.sub(MASK, text) if any(form in text for form in forms) else text


@functools.lru_cache(maxsize=8)
def _finder(known: tuple[str, ...], user: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """The values in all the ways in which they may be written, and what finds them."""
    found = {form for word in known for form in _forms(word, user)}
    forms = tuple(sorted(found, key=lambda form: (-len(form), form)))
    return forms, re.compile("|".join(map(_found, forms)))


def _forms(word: str, user: str) -> set[str]:
    quoted = {quote(word, safe=""), quote(word), quote_plus(word)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in quoted}
    escaped = {json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1], repr(word)[1:-1]}
    twice = {quote(form, safe="") for form in quoted}
    login = base64.b64encode(f"{user}:{word}".encode()).decode()
    return {word, unquote(word), html.escape(word), login, *quoted, *lower, *escaped, *twice}


def _found(form: str) -> str:
    if form.isalnum() and len(form) < _ALONE_BELOW:
        digit = "." if form.isdigit() else ""  # no part of a number
        before = rf"(?:(?<![A-Za-z0-9{digit}])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
        return rf"{before}{re.escape(form)}(?![A-Za-z0-9{digit}])"
    return re.escape(form)


def _of_address(value: str) -> set[str]:
    """The password and the secret query values of an address, as they stand and decoded."""
    written = {found[1].partition("=")[2] for found in re.finditer(_QUERY_VALUE, value)}
    if (info := _USER_INFO.search(value)) is not None:
        written.add(info["word"])
    return {form for word in written for form in (word, unquote(word), unquote_plus(word))}

"""A model's address in; out: the same, looked for in the cache alone where the hub is out of reach.

Without this the hub's client tries again for minutes on a machine that has no network.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from huggingface_hub import constants

from kltune.errors import SpecError
from kltune.masking import redact

if TYPE_CHECKING:
    from kltune.trainer.sources import ModelSource

PATIENCE_S: Final = 5.0
"""Seconds that a connection to the hub may take; HF_HUB_ETAG_TIMEOUT, where it is set, says otherwise."""
_PICKLED: Final = "adapter_model.bin"
"""The one pickle that Transformers reads where a configuration asks for it, whatever its caller says."""
_PORTS: Final = {"http": 80, "https": 443}


def in_reach(source: ModelSource) -> ModelSource:
    """The source, marked for the cache alone where the hub (or the proxy before it) does not answer.

    A hub that answers slowly is left to its own client.
    """
    if source.kind != "hub" or constants.is_offline_mode():
        return source
    return source if _answers(constants.ENDPOINT, patience_s()) else replace(source, is_cached=True)


def refuse_pickled(pretrained: str, field: str, **flags: Any) -> None:
    """See to it that the configuration of a model does not have its weights read from a pickle.

    ``flags``: what ``from_pretrained`` is told besides; a GGUF has no such entry.

    Raises:
        SpecError: it does.
        OSError: it can't be read, or is not there.
    """
    if "gguf_file" in flags:
        return
    from transformers import PreTrainedConfig  # noqa: PLC0415 - most callers of this module need no more of it

    config, _ = PreTrainedConfig.get_config_dict(pretrained, **flags)
    if _holds(config, _PICKLED):
        raise SpecError(
            f"{field}: the configuration of {pretrained} has weights read from {_PICKLED}, a pickle, which can run any "
            "code when it is read; take that entry (transformers_weights) out and give safetensors"
        )


def patience_s() -> float:
    """Seconds that are waited for the hub's answer."""
    is_set = "HF_HUB_ETAG_TIMEOUT" in os.environ
    return float(constants.HF_HUB_ETAG_TIMEOUT) if is_set else PATIENCE_S


def trouble_words(source: ModelSource, first: str) -> str:
    """Why nothing came from the hub: its own words, unless it was not asked."""
    if not source.is_cached:
        return first
    return (
        f"{constants.ENDPOINT} does not answer within {patience_s():g} s (HF_HUB_ETAG_TIMEOUT changes that) and the "
        "cache does not hold it; give a folder, or download it where there is a network"
    )


def first_words(error: BaseException, switch: str | None = "model.trust_remote_code") -> str:
    """What Transformers says first when it could not load something, without secrets.

    ``switch``: the field of the spec that has a model's own code run; none: it is never run there.
    """
    text = str(error).strip()
    if "trust_remote_code" in text:
        if switch is None:
            return "it brings code of its own, which is not run"
        return (
            f"it brings code of its own, which is run only where the spec says {switch}: true; read that code first, "
            "since it can do whatever you can"
        )
    return redact((text or type(error).__name__).splitlines()[0])


def _holds(facts: Any, word: str) -> bool:
    if isinstance(facts, dict | list):
        parts: Any = facts.values() if isinstance(facts, dict) else facts  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return any(_holds(part, word) for part in parts)
    return facts == word


def _answers(endpoint: str, seconds: float) -> bool:
    """Whether a connection can be made; names are looked up within the same time."""
    address = urlsplit(endpoint)
    host = address.hostname or ""
    proxy = None if proxy_bypass(host) else getproxies().get(address.scheme)
    if proxy is not None:
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = (address.hostname or "", address.port or _PORTS.get(address.scheme, 443))
    found: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection(place, timeout=seconds).close()
        except OSError:
            return
        found.append(True)

    # A look-up of a name has no time limit of its own.
    asking = threading.Thread(target=connect, daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(found)

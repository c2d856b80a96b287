"""Reads and checks the words of an entry in a shard file, of either kind. Messages name the entry and the word, never its value.

An unknown word is an error if it is similar to a known one (a `dequeuOnly` must not be overlooked). Other unknown words are ignored,
since such files also serve other programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.server.config.errors import did_you_mean


def read_document(content: bytes) -> dict[str, Any]:
    """The file's object. Raises ValueError."""
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not isinstance(document, dict):
        raise ValueError("it holds no object of shards by name")  # noqa: TRY004 (what is wrong is the file's content)
    return document


def check_words(key: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError for a word that is probably one of `known`, misspelt."""
    for name in value:
        hint = "" if name in known else did_you_mean(name, known)
        if hint:
            raise ValueError(f"{key!r} has an unknown {name!r}{hint}")


def master_of(key: str, master: Any) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    if not isinstance(master, dict):
        raise ValueError(f"{key!r} has no master with host and port")  # noqa: TRY004
    host, port = master.get("host"), master.get("port")
    if not isinstance(host, str) or not host.strip() or re.search(r"[\s/@\x00]", host):
        raise ValueError(f"{key!r}: master's host is no name or address of a host")
    if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise ValueError(f"{key!r}: master's port is no number from 1 to 65535")
    return host, port


def optional_text(key: str, value: Mapping[str, Any], name: str) -> str | None:
    """None if it is left out or null. Empty text counts as left out, but is a valid password."""
    found = value.get(name)
    if found is None:
        return None
    if not isinstance(found, str):
        raise ValueError(f"{key!r}: {name} is not text")  # noqa: TRY004
    if "\0" in found:
        raise ValueError(f"{key!r}: {name} has a zero byte in it")
    return None if found == "" and name != "passwd" else found


def optional_flag(key: str, value: Mapping[str, Any], name: str) -> bool | None:
    """None if it is left out or null."""
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise ValueError(f"{key!r}: {name} is not true or false")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found

"""Tokens as values, and their file: JSON, with the digest of each secret and never the secret itself.

The file is replaced as a whole, so that a server reads the old one or the new one. Weakness: two programs on different machines that
change the same file over a network file system without locks can revert each other's change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pinlater.domain.access import ALL_QUEUES, Role, check_pattern
from pinlater.server.access.quotas import OwnQuota, check_bytes
from pinlater.server.access.whole_files import locked, replace_file

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
# By the field of `OwnQuota`.
QUOTA_FIELDS: Mapping[str, str] = {
    "connections": "max_connections",
    "polls": "max_polls",
    "bytes_in_flight": "max_bytes_in_flight",
}
_FIELDS = frozenset(
    {"name", "roles", "queues", "sha256", "created_at_ms", "expires_at_ms", "speaks_for_others", *QUOTA_FIELDS.values()}
)
TOKENS_MAX = 10_000


class Token(NamedTuple):
    """What is known about one token. `digest` is the SHA-256 of its secret in hexadecimal digits. `speaks_for_others`: the servers accept
    the name of the user that its holder acts for."""

    name: str
    digest: str
    roles: tuple[Role, ...]
    queues: tuple[str, ...] = (ALL_QUEUES,)
    created_at_ms: int = 0
    expires_at_ms: int | None = None
    quota: OwnQuota = OwnQuota()
    speaks_for_others: bool = False

    def has_expired(self, now_ms: int) -> bool:
        """Returns whether it is refused from now on."""
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms


def check_name(name: str) -> str:
    """Returns the name. Raises ValueError if a token can't have this name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a token: 1 to 64 letters, digits, and the characters _ . @ -")
    return name


def parse_tokens(content: bytes) -> tuple[Token, ...]:
    """The tokens of a file. Raises ValueError, with the place, if anything in it can't be understood: no entry is skipped."""
    document = json.loads(content)
    entries = document.get("tokens") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('the list "tokens" is missing')  # noqa: TRY004 (what is wrong is the file's content)
    if len(entries) > TOKENS_MAX:
        raise ValueError(f"{len(entries)} tokens; at most {TOKENS_MAX} are possible")
    tokens = tuple(_parse_token(index, entry) for index, entry in enumerate(entries))
    for field in ("name", "digest"):
        seen: set[str] = set()
        for token in tokens:
            if getattr(token, field) in seen:
                raise ValueError(f"two tokens have the {field} of {token.name!r}")
            seen.add(getattr(token, field))
    return tokens


def _parse_token(index: int, entry: Any) -> Token:
    if not isinstance(entry, dict):
        raise ValueError(f"tokens[{index}] is not an object")  # noqa: TRY004 (what is wrong is the file's content)
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        raise ValueError(f"tokens[{index}] has an unknown field {unknown[0]!r}")
    try:
        return Token(
            check_name(_text(entry, "name")),
            _digest(entry),
            tuple(Role(role) for role in _texts(entry, "roles")),
            tuple(check_pattern(pattern) for pattern in _texts(entry, "queues")),
            _time(entry, "created_at_ms") or 0,
            _time(entry, "expires_at_ms"),
            _quota(entry),
            _flag(entry, "speaks_for_others"),
        )
    except ValueError as error:
        raise ValueError(f"tokens[{index}]: {error}") from None


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str):
        raise ValueError(f'"{field}" is missing or not a string')  # noqa: TRY004 (what is wrong is the file's content)
    return value


def _digest(entry: dict[str, Any]) -> str:
    digest = _text(entry, "sha256")
    if not _DIGEST.fullmatch(digest):
        raise ValueError('"sha256" is not 64 hexadecimal digits')
    return digest


def _texts(entry: dict[str, Any], field: str) -> list[str]:
    values = entry.get(field)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise ValueError(f'"{field}" is not a list of strings, or is empty')
    return values


def _time(entry: dict[str, Any], field: str) -> int | None:
    value = entry.get(field)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f'"{field}" is not a number of milliseconds')
    return value


def _quota(entry: dict[str, Any]) -> OwnQuota:
    quota = OwnQuota(*[_bound(entry, field) for field in QUOTA_FIELDS.values()])
    if quota.bytes_in_flight is not None:
        check_bytes(quota.bytes_in_flight)
    return quota


def _bound(entry: dict[str, Any], field: str) -> int | None:
    value = entry.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f'"{field}" is not a whole number of at least 0')
    return value


def quota_fields(quota: OwnQuota) -> dict[str, int]:
    """Returns the fields of the file for the bounds of the quota; bounds that are left to the server have none."""
    bounds = zip(QUOTA_FIELDS.values(), quota, strict=True)
    return {field: bound for field, bound in bounds if bound is not None}


def _flag(entry: dict[str, Any], field: str) -> bool:
    value = entry.get(field, False)
    if not isinstance(value, bool):
        raise ValueError(f'"{field}" is neither true nor false')  # noqa: TRY004 (what is wrong is the file's content)
    return value


def tokens_text(tokens: Sequence[Token]) -> str:
    """The content of a file with these tokens. A token without a quota of its own is written in the format that servers from before
    quotas can read."""
    entries = [
        {
            "name": token.name,
            "roles": [role.value for role in token.roles],
            "queues": list(token.queues),
            "sha256": token.digest,
            "created_at_ms": token.created_at_ms,
            "expires_at_ms": token.expires_at_ms,
            **quota_fields(token.quota),
            **({"speaks_for_others": True} if token.speaks_for_others else {}),  # older servers refuse the field
        }
        for token in tokens
    ]
    return json.dumps({"tokens": entries}, indent=2) + "\n"


def change_tokens(
    path: Path,
    change: Callable[[tuple[Token, ...]], Sequence[Token]],
    note: Callable[[bytes, bytes], None] | None = None,
) -> None:
    """Replaces the tokens of the file by the result of `change`; a missing file has no tokens. `note` is called before that, with
    the content of the file before and after.

    Raises ValueError for a broken file, OSError, and the errors of `change`; then the file stays as it is.
    """
    with locked(path):
        before = path.read_bytes() if path.exists() else None
        text = tokens_text(change(() if before is None else parse_tokens(before)))
        if note is not None:
            note(before or b"", text.encode())
        replace_file(path, text)

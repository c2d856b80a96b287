"""Hashes of the admin password: how they are made, and how a password is compared with one.

There are two formats. Ours is self-contained: `scrypt:<n>:<r>:<p>:<salt>:<digest>`, both in URL-safe base64 without padding; it
contains no `$`, so shells, compose files and properties leave it alone. The original's is the lower-case hex of SHA-256(password + a
public salt): accepted, because operators have it in their files, but fast to guess.

Must never log or return a password. Weakness: a check costs some 0.1 s of one core and 16 MiB, so callers bound how many run at once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

_ORIGINAL_SALT = "VHzMjY2Kb9BYlyrbtpyFvnHVPZAvB5Rm"
_ORIGINAL_FORM = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
# 16 MiB and five passes: as hard to guess as one pass over 128 MiB, within a small server's memory.
_N, _R, _P = 2**14, 8, 5
_SALT_BYTES, _DIGEST_BYTES = 16, 32
_MEMORY_BYTES_MAX = 256 * 2**20
_PASSES_MAX = 64


class HashMalformed(ValueError):
    """A stored hash that no password could ever match, or whose check would cost too much."""


class _Scrypt(NamedTuple):
    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes


def hash_password(password: str, salt: bytes | None = None) -> str:
    """A new hash of `password` with a salt of its own. Raises `ValueError` for an empty password."""
    if not password:
        raise ValueError("the password must not be empty")
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    digest = _scrypt(password.encode(), _Scrypt(_N, _R, _P, salt, b"\0" * _DIGEST_BYTES))
    return f"scrypt:{_N}:{_R}:{_P}:{_encoded(salt)}:{_encoded(digest)}"


def verify_password(password: str, stored: str) -> bool:
    """Returns whether `stored` is a hash of `password`, in constant time. Raises `HashMalformed`."""
    form = _parse(stored)
    try:
        secret = password.encode()
    except UnicodeEncodeError:
        return False
    if form is None:
        digest = hashlib.sha256(secret + _ORIGINAL_SALT.encode()).hexdigest()
        return hmac.compare_digest(digest, stored)
    return hmac.compare_digest(_scrypt(secret, form), form.digest)


def check_hash_form(stored: str) -> None:
    """Raises `HashMalformed`, with a text that does not contain the hash, unless `verify_password` can use it."""
    _parse(stored)


def _parse(stored: str) -> _Scrypt | None:
    """The parts of our format, or None for the original's."""
    if _ORIGINAL_FORM.fullmatch(stored):
        return None
    kind, *rest = stored.split(":")
    if kind != "scrypt" or len(rest) != 5:
        raise HashMalformed(
            "is not a password hash: `pinlater server hash-password` makes one"
            " (64 lower-case hexadecimal digits of the original's form are possible too)"
        )
    if not all(_NUMBER.fullmatch(number) for number in rest[:3]):
        raise HashMalformed("is a damaged scrypt hash: its costs are not whole numbers")
    n, r, p = (int(number) for number in rest[:3])
    form = _Scrypt(n, r, p, _decoded(rest[3]), _decoded(rest[4]))
    _check_costs(form)
    return form


def _check_costs(form: _Scrypt) -> None:
    if form.n < 2 or form.n & (form.n - 1):
        raise HashMalformed("is a damaged scrypt hash: its first cost is not a power of two")
    if 128 * form.n * form.r > _MEMORY_BYTES_MAX or form.p > _PASSES_MAX:
        raise HashMalformed("is a scrypt hash whose check would take too much memory or time")
    if len(form.salt) < 8 or len(form.digest) != _DIGEST_BYTES:
        raise HashMalformed("is a damaged scrypt hash: its salt or digest is too short or too long")


def _scrypt(secret: bytes, form: _Scrypt) -> bytes:
    memory = 128 * form.r * (form.n + form.p + 4)
    return hashlib.scrypt(secret, salt=form.salt, n=form.n, r=form.r, p=form.p, maxmem=memory * 2, dklen=_DIGEST_BYTES)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise HashMalformed("is a damaged scrypt hash: its salt or digest is not base64") from None

"""Hashes of passwords that a server checks in microseconds: one check of a real one costs some 0.1 s of a core."""

from __future__ import annotations

import base64
import hashlib

_SALT = b"0123456789abcdef"


def quick_hash(password: str) -> str:
    """In the form of `pinlater server hash-password`, with the lowest costs."""
    digest = hashlib.scrypt(password.encode(), salt=_SALT, n=16, r=1, p=1, dklen=32)
    salt, shown = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (_SALT, digest))
    return f"scrypt:16:1:1:{salt}:{shown}"

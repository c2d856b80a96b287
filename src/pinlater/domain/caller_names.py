"""Callers as operators see them: by the names of their tokens, and of the users for which they act."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

NO_TOKEN, UNKNOWN_TOKEN, ADMIN_PASSWORD = "no token", "unknown token", "admin password"
"""Names of callers without a token: the space distinguishes them from names of tokens."""
USER_RULE = "1 to 100 letters, digits, and the characters _ . @ + - = : / \\"
_USER = re.compile(r"[A-Za-z0-9_.@+=:/\\-]{1,100}", re.ASCII)
_FOR = " for "


class NamedCaller(NamedTuple):
    """A caller: the name of its token, or a word for callers without a valid one; and its roles."""

    who: str
    roles: Sequence[str] = ()


WITHOUT_TOKEN = NamedCaller(NO_TOKEN)


def is_user_name(text: str) -> bool:
    """Returns whether a text can be the name of a user for which a caller acts. It has no spaces, commas, or characters beyond ASCII."""
    return _USER.fullmatch(text) is not None


def spoken_for(token_name: str, user: str) -> str:
    """The name of a caller that acts for a user. A token's name has no space, so the names of two callers are never the same."""
    return f"{token_name}{_FOR}{user}"

"""The token of a call, from the beginning of its frame: a listener reads it before it accepts the rest of a long frame.

Every input gives a string or None. Weakness: a caller that sends other fields than strings in its context, or more than fits into the
beginning before its token, is not recognised; its frame is checked when it is complete.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 it is called like nothing

from thrift.Thrift import TType

_FIELD = Struct(">Bh")
_LENGTH = Struct(">i")
_CONTEXT = (TType.STRUCT, 1)  # the first argument of each method
_AUTH_TOKEN = 100


def token_of_call(head: bytes, body_at: int) -> str | None:
    """The token in a call's context: '' if it has none, None if the beginning doesn't contain it. `body_at`: where the arguments begin."""
    try:
        if _FIELD.unpack_from(head, body_at) != _CONTEXT:
            return None
        at = body_at + _FIELD.size
        while head[at] != TType.STOP:
            kind, number = _FIELD.unpack_from(head, at)
            (size,) = _LENGTH.unpack_from(head, at + _FIELD.size)
            begin = at + _FIELD.size + _LENGTH.size
            at = begin + size
            if kind != TType.STRING or not begin <= at <= len(head):
                return None
            if number == _AUTH_TOKEN:
                return head[begin:at].decode()
    except (IndexError, StructError, UnicodeDecodeError):
        return None
    return ""

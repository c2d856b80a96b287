"""Claim tokens say when their claim was sent, so that an ack shows how long its job ran. To clients they are opaque.

A caller may send any text as a token, so what is read from one is for statistics only.
"""

from __future__ import annotations

_MARK = "~"
RUN_MS_MAX = 366 * 24 * 3_600_000


def timed(name: str, now_ms: int) -> str:
    """The token of a claim that is sent now. `name`: of that claim alone, for ever."""
    return f"{name}{_MARK}{now_ms:x}"


def name_of(token: str) -> str:
    """What the token was made of."""
    return token.partition(_MARK)[0]


def run_ms(token: str | None, now_ms: int) -> int | None:
    """How long ago the claim was sent. None for a token that does not say so: a server of another version made it, or a caller."""
    if token is None:
        return None
    try:
        span_ms = now_ms - int(token.rpartition(_MARK)[2], 16)
    except ValueError:
        return None
    return span_ms if 0 <= span_ms <= RUN_MS_MAX else None

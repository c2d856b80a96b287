"""The identity of this server, from which claim descriptors and tokens are made.

Tokens contain the time at which their claim was sent, so that an ack shows how long its job ran. To clients they are opaque. A caller may
send any string as a token, so what is parsed from one is used for statistics only.
"""

from __future__ import annotations

from hashlib import blake2b

from pinlater.domain.job import Holder

SOURCE_CHARS_MAX = 200
RUN_MS_MAX = 366 * 24 * 3_600_000
_MARK = "~"


def timed(name: str, now_ms: int) -> str:
    """Returns the token of a claim that is sent now. `name`: of that claim alone, for ever."""
    return f"{name}{_MARK}{now_ms:x}"


def name_of(token: str) -> str:
    """Returns the parts from which the token was made."""
    return token.partition(_MARK)[0]


def run_ms(token: str | None, now_ms: int) -> int | None:
    """Returns how long ago the claim was sent; None for a token without that time: a server of another version made it, or a caller."""
    if token is None:
        return None
    try:
        span_ms = now_ms - int(token.rpartition(_MARK)[2], 16)
    except ValueError:
        return None
    return span_ms if 0 <= span_ms <= RUN_MS_MAX else None


def kept_source(source: str) -> str:
    """A source as claims keep it and checkpoints compare it: unchanged, or, if it is too long, its beginning and a digest.

    Truncation alone would make two different long sources equal.
    """
    if len(source) <= SOURCE_CHARS_MAX:
        return source
    digest = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{source[: SOURCE_CHARS_MAX - len(digest) - 1]}~{digest}"


class Identity:
    """Makes the holders of claims: `host:port:serverStartMillis:source:counter`, as old clients know it, and a token.

    A token names one dequeue call of one server process for ever: the slot distinguishes servers that run at the same time, the start
    those that run one after the other, and `nonce` (a random number) those that began in the same millisecond while the shard that
    assigns slots was unreachable. The dispatcher adds to it for each further claim call. It is opaque to clients and not a secret; a
    caller without one may ack any job anyway. At most 64 bytes.
    """

    def __init__(self, host: str, port: int, started_at_ms: int, slot: int, nonce: int = 0) -> None:
        self.host = host.replace(":", "_")  # IPv6 would make the descriptor ambiguous
        self.port = port  # changes if the system chooses it
        self.started_at_ms = started_at_ms
        self._life = f"{slot:x}-{started_at_ms:x}-{nonce:x}"
        self._claims = 0

    @property
    def life(self) -> str:
        """Unique to this start of this server."""
        return self._life

    @property
    def address(self) -> str:
        """`host:port`, with which the claims of this server begin."""
        return f"{self.host}:{self.port}"

    def holder(self, source: str, now_ms: int) -> Holder:
        """A new holder for one dequeue call that claims now."""
        source = kept_source(source)
        self._claims = number = self._claims + 1
        descriptor = f"{self.host}:{self.port}:{self.started_at_ms}:{source}:{number}"
        return tuple.__new__(
            Holder, (descriptor, source, timed(f"{self._life}-{number:x}", now_ms))
        )  # faster than calling the class

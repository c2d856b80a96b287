"""How two servers of a shard authenticate each other: each proves that it knows the shard's secret, for this connection alone.

The side that connects names itself and sends a nonce; the other side answers with a nonce of its own and a proof for each shard that it
knows; the first side checks the proof for its shard and sends its own proof. Before a side has proven itself, nothing else is read from
it, and no more than `HELLO_BYTES_MAX`. With TLS, proofs are bound to the certificate of the side that accepts the connection: its digest
is the `binding`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from pinlater.server.cluster.forwarding.messages import OLDEST_VERSION, VERSION
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost
from pinlater.server.link import messages
from pinlater.server.link.messages import BadMessage

HELLO_BYTES_MAX = 1_024
WELCOME_BYTES_MAX = 64 * 1024  # it has a proof for each shard
NONCE_BYTES = 16

T = TypeVar("T")


class Hello(NamedTuple):
    """The greeting of the side that connects. `versions`: the lowest and the highest version that it speaks; `lost`: its last connections
    to the other side.
    """

    versions: tuple[int, int]
    address: str
    nonce: bytes
    lost: Sequence[Lost] = ()


class Welcome(NamedTuple):
    """The answer. `version`: the version that both speak; `proof`: that of the side that accepts the connection."""

    version: int
    nonce: bytes
    proof: bytes


class Proof(NamedTuple):
    """The proof of the side that connects."""

    proof: bytes


def decoded(message: bytes, kind: type[T]) -> T:
    """Returns the decoded message of a frame. Raises `BadMessage`."""
    return messages.decoded(msgspec.msgpack.Decoder(kind), message)


class SecretUnknown(BadMessage):
    """The other side has not proven that it uses the shard. A server that has just started, or whose shard has just come back, can't
    prove it yet."""


def hello(address: str, lost: Sequence[Lost] = ()) -> Hello:
    """A new one; `address`: where the connecting side itself listens."""
    return Hello((OLDEST_VERSION, VERSION), address, secrets.token_bytes(NONCE_BYTES), lost)


def welcome(asked: Hello, known_secrets: list[bytes], binding: bytes = b"") -> tuple[Welcome, bytes]:
    """The answer to a hello: one proof for each known secret, concatenated, since a hello names no shard; and the nonce of this side.

    Raises `BadMessage` if there is no version that both sides speak.
    """
    low, high = asked.versions
    version = min(VERSION, high)
    if version < max(OLDEST_VERSION, low) or len(asked.nonce) != NONCE_BYTES:
        own = f"{OLDEST_VERSION} to {VERSION}"
        raise BadMessage(f"a server that speaks versions {low} to {high}; this one speaks {own}")
    nonce = secrets.token_bytes(NONCE_BYTES)
    proofs = b"".join(_signed(secret, b"welcome", asked, nonce, binding) for secret in known_secrets)
    return Welcome(version, nonce, proofs), nonce


def prove(asked: Hello, answered: Welcome, secret: bytes, binding: bytes = b"") -> Proof:
    """Checks the other side's proof, and makes this side's. Raises `SecretUnknown`."""
    expected = _signed(secret, b"welcome", asked, answered.nonce, binding)
    size = len(expected)
    given = [answered.proof[start : start + size] for start in range(0, len(answered.proof), size)]
    if not any(hmac.compare_digest(expected, each) for each in given):
        raise SecretUnknown(
            "it does not know the secret of a shard that both use: perhaps it has not reached that shard yet"
        )
    return Proof(_signed(secret, b"proof", asked, answered.nonce, binding))


def check(asked: Hello, nonce: bytes, given: Proof, known_secrets: list[bytes], binding: bytes = b"") -> None:
    """Raises `BadMessage` unless the connecting side knows one of the secrets."""
    if not any(
        hmac.compare_digest(given.proof, _signed(secret, b"proof", asked, nonce, binding)) for secret in known_secrets
    ):
        raise BadMessage("a server that does not know the secret of any shard")


def _signed(secret: bytes, role: bytes, asked: Hello, nonce: bytes, binding: bytes) -> bytes:
    signed = (role, asked, nonce, binding) if binding else (role, asked, nonce)
    return hmac.digest(secret, msgspec.msgpack.encode(signed), "sha256")

"""What the clients that a worker opens show to servers, and check of them."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

from pinlater.client._tls import Tls

WHERE_FROM = (
    "A worker takes its token from Worker(token=...), PINLATER_TOKEN, or the file that PINLATER_TOKEN_FILE names."
)


class ServerAccess(NamedTuple):
    """`tls` and `token` as for `AsyncClient`: None takes them from the environment."""

    tls: Tls | bool | None = None
    token: str | PathLike[str] | None = None

    def __repr__(self) -> str:
        return "ServerAccess(...)"  # without the token

"""Translates Redis' errors into PinLater's, each with its cause and a remedy."""

from __future__ import annotations

import re

from redis import exceptions as driver

from pinlater.domain.errors import ShardConnectionFailed, ShardRefused, StoreFull, Unavailable
from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.redis.settings import RedisEndpoint


class NoConnection(DatabaseConnectionLost):
    """There was no connection, so nothing was sent."""


class Refused(Exception):
    """Redis, or one of our scripts, answered with an error before anything was changed. `code` is its first word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ScriptFailed(Refused):
    """A script ended with an error that may have come after its first write: what it had written stays, and the rest is not done."""


class StaleQueues(Exception):
    """A queue has another id than in the queue cache, or another server has the slot: the call decides again."""


ELSEWHERE = frozenset({"READONLY", "MASTERDOWN"})
"""The master may be another server now: worth a new connection."""


# Redis checks these conditions before a call begins; within a script again, but only before its first write.
_BEFORE_FIRST_WRITE = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS"})
# All other errors may come from a proxy, which says nothing about whether Redis executes the call. The last three are our scripts'.
_NOT_BEGUN = _BEFORE_FIRST_WRITE | frozenset(
    {
        "NOSCRIPT",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CROSSSLOT",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "LOADING",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "BUSY",
        "SLOTLOST",
        "OVERTAKEN",
        "STALEQUEUE",
    }
)


def refusal_of(error: Exception) -> Refused | None:
    """Returns the error with which Redis itself, or a script, refused the call. None: the call may be executed, now or later."""
    code, text = _code_of(error)
    if "@user_script" in str(error):  # added by Redis to errors within a script, not to those that it returns
        return Refused(code, text) if code in _BEFORE_FIRST_WRITE else ScriptFailed(code, text)
    return Refused(code, text) if code in _NOT_BEGUN else None


def _code_of(error: Exception) -> tuple[str, str]:
    """The error's code and its text; the driver removes the code if it has a class for it."""
    text = str(error)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, text.removeprefix(code + " ")
    code, _, rest = text.partition(" ")
    if code.isupper() and code != "ERR":
        return code, rest
    found = _IN_SCRIPT.search(text)
    if found is not None:
        return found[1], found[2]
    return "MISCONF" if _CANNOT_SAVE.search(text) else "ERR", text


# Redis 6.2 appends the answer to a script's command to the position in the script, and cuts out the middle if that gets long.
_IN_SCRIPT = re.compile(r"Error running script .*: -([A-Z]+) (.*)", re.DOTALL)
_CANNOT_SAVE = re.compile("stop-writes-on-bgsave-error|writing to the AOF")

_CODES: tuple[tuple[type[Exception], str], ...] = (
    (driver.NoScriptError, "NOSCRIPT"),
    (driver.BusyLoadingError, "LOADING"),
    (driver.AuthenticationError, "NOAUTH"),
    (driver.ReadOnlyError, "READONLY"),
    (driver.OutOfMemoryError, "OOM"),
    (driver.NoPermissionError, "NOPERM"),
    (driver.MovedError, "MOVED"),
    (driver.AskError, "ASK"),
    (driver.TryAgainError, "TRYAGAIN"),
    (driver.ClusterDownError, "CLUSTERDOWN"),
    (driver.ClusterCrossSlotError, "CROSSSLOT"),
    (driver.MasterDownError, "MASTERDOWN"),
)


def translate(error: Exception, endpoint: RedisEndpoint) -> Unavailable:
    """The `Unavailable` for an error of Redis, with that as its cause."""
    found = _translate(error, endpoint)
    found.__cause__ = error
    return found


def _translate(error: Exception, endpoint: RedisEndpoint) -> Unavailable:
    if not isinstance(error, Refused):
        return ShardConnectionFailed(str(error))
    code, text = error.code, error.text
    if code == "OOM":
        return StoreFull.of(f"{endpoint}: Redis has used up its maxmemory")
    if code == "READONLY":
        return ShardConnectionFailed(f"{endpoint} takes no writes now ({text}); is it a replica, or after a failover?")
    if code in {"MOVED", "ASK"}:
        return ShardConnectionFailed(
            f"{endpoint} is a node of a Redis Cluster that does not have this shard's keys ({code} {text}); "
            "name the node that has them, or a Redis without cluster mode",
            retryable=False,
        )
    if code == "BUSY":
        return ShardRefused(f"{endpoint} is busy with a script ({text}); nothing was changed", retry_after_ms=100)
    if code == "LOADING":
        return ShardConnectionFailed(f"{endpoint} is loading its data", retry_after_ms=1000)
    if code == "MASTERDOWN":
        return ShardConnectionFailed(f"{endpoint} is a replica without its master ({text})", retry_after_ms=1000)
    if code == "MISCONF":
        return ShardConnectionFailed(f"{endpoint} can't save and takes no writes ({text})")
    if code == "NOREPLICAS":
        return ShardConnectionFailed(f"{endpoint} has too few replicas to take writes ({text})")
    if code in {"NOAUTH", "WRONGPASS"} and not endpoint.password:
        return ShardConnectionFailed(
            f"{endpoint} refuses our login ({text}): no password is configured; "
            "set PINLATER_REDIS_PASSWORD or redis.password_file",
            retryable=False,
        )
    if code in {"NOAUTH", "WRONGPASS", "NOPERM"}:
        return ShardConnectionFailed(
            f"{endpoint} refuses our login ({code} {text}); check user, password and ACL rules", retryable=False
        )
    if code == "CLUSTERDOWN":
        return ShardConnectionFailed(f"{endpoint}: its cluster is down ({text})")
    return ShardConnectionFailed(f"{endpoint}: {error}")

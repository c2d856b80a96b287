"""The databases' errors in our words: whose fault it was, and what would help."""

from __future__ import annotations

from asyncmy import errors as driver

from pinlater.domain.errors import ShardConnectionFailed, StoreFull, WorldError
from pinlater.storage.mysql.connection import ConnectionLost, code_of, text_of
from pinlater.storage.mysql.settings import Endpoint

DUPLICATE = 1062
DEADLOCK = 1213
LOCK_WAIT = 1205
NO_PARENT = {1216, 1452}
_FULL = {1021, 1114, 1030, 3675}
# read-only servers, read-only transactions, replicas after a failover
_READ_ONLY = {1290, 1792, 1836, 3100}
_TOO_MANY = {1040, 1203, 1226}
_DENIED = {1044, 1045, 1142, 1143, 1227, 1698}
_PACKET = {1153}


def translate(error: Exception, endpoint: Endpoint) -> WorldError:
    """A `WorldError` that says what happened and what would help; with the cause kept."""
    found = _translate(error, endpoint)
    found.__cause__ = error
    return found


def _translate(error: Exception, endpoint: Endpoint) -> WorldError:
    if isinstance(error, ConnectionLost):
        return ShardConnectionFailed(str(error))
    code, text = code_of(error), text_of(error)
    if code in _FULL:
        return StoreFull(f"{endpoint}: {text}")
    if code in _READ_ONLY:
        return ShardConnectionFailed(f"{endpoint} takes no writes now ({text}); is it a replica, or after a failover?")
    if code in _TOO_MANY:
        return ShardConnectionFailed(f"{endpoint} has no connection left for us ({text}); raise max_connections")
    if code in _DENIED:
        return ShardConnectionFailed(
            f"{endpoint} lets us not in ({text}); check user, password and grants", retryable=False
        )
    if code in _PACKET:
        return ShardConnectionFailed(f"{endpoint}: {text}; raise max_allowed_packet", retryable=False)
    return ShardConnectionFailed(f"{endpoint}: {text}")


def is_ours(error: Exception) -> bool:
    """Whether it speaks of the database, rather than of a bug of ours."""
    return isinstance(error, ConnectionLost) or (
        isinstance(error, driver.MySQLError) and not isinstance(error, driver.ProgrammingError)
    )

"""Translates the databases' errors into PinLater's, each with its cause and a remedy."""

from __future__ import annotations

from asyncmy import errors as driver

from pinlater.domain.errors import CallerError, ShardConnectionFailed, ShardRefused, StoreFull, Unavailable
from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.mysql.connection import NODE_NOT_READY, code_of, text_of
from pinlater.server.storage.mysql.settings import MysqlEndpoint

DUPLICATE = 1062
# Also at a COMMIT, if several servers write: the transaction was rolled back. On Galera only if the COMMIT was a packet of its own.
DEADLOCKS = {1213, 3101}
LOCK_WAIT = 1205
NO_PARENT = {1216, 1452}
NOT_NULL = 1048
# The error with which `check_queues` fails.
OUT_OF_RANGE = 1690
QUEUE_GONE = NO_PARENT | {OUT_OF_RANGE}
# read-only servers (innodb_read_only, too), read-only transactions, replicas after a failover
READ_ONLY = {1036, 1290, 1792, 1836, 3100}
# Answers to a COMMIT that prove that nothing was committed: the conflict of two nodes, and a node that takes no commands. Every other
# error leaves the outcome open. It may occur during the COMMIT (a failure of the binary log or of a replication plugin; 1180 on a Galera
# node that loses the quorum meanwhile), or come from a proxy: MaxScale answers 1290 if the server is lost while the COMMIT is under way.
ROLLED_BACK = DEADLOCKS | {NODE_NOT_READY}
# a disk or a table space is full; the server can't write a file
_FULL = {3, 1021, 1026, 1030, 1114, 3675}
_TOO_MANY = {1040, 1203, 1226}
# missing rights on a database, a table, a column; a missing privilege
RIGHTS_MISSING = {1044, 1142, 1143, 1227}
WRONG_PASSWORD = 1045  # or none, or no such user
# besides: expired, locked
_DENIED = RIGHTS_MISSING | {WRONG_PASSWORD, 1698, 1820, 1862, 3118, 4151}
_PACKET = {1153}
NO_DATABASE = 1049
NO_TABLE = 1146
COLUMN_EXISTS = 1060
# Answers to a packet of statements that prove that one before its COMMIT failed, so that the COMMIT was not begun. Any other may come
# from a proxy for the whole packet, because it lost the server or waited for too long.
FAILED_BEFORE = DEADLOCKS | QUEUE_GONE | RIGHTS_MISSING | {DUPLICATE, NOT_NULL, NO_TABLE}


class BodyTooLong(CallerError):
    """The job is too long for a statement of the database. The limit says how many bytes one job may take."""

    def __init__(self, endpoint: MysqlEndpoint, index: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"Job {index} of the request takes {size_bytes} bytes as a statement and {endpoint} takes {limit_bytes}: "
            "raise its max_allowed_packet, to more than twice the longest body",
            detail="BODY_TOO_LARGE",
        )


def lacks_changes(endpoint: MysqlEndpoint) -> DatabaseConnectionLost:
    """Returns the error for a connection to a database that must not be used."""
    return DatabaseConnectionLost(
        f"{endpoint} lacks changes that were answered as stored; is it a replica that has not applied all of them?"
    )


def translate(error: Exception, endpoint: MysqlEndpoint, tries: int = 1) -> Unavailable:
    """The `Unavailable` for an error of the database, with that as its cause."""
    found = _translate(error, endpoint, tries)
    found.__cause__ = error
    return found


def _translate(error: Exception, endpoint: MysqlEndpoint, tries: int) -> Unavailable:
    if isinstance(error, DatabaseConnectionLost):
        return ShardConnectionFailed(str(error))
    code, text = code_of(error), text_of(error)
    if code in _FULL:
        return StoreFull.of(f"{endpoint}: {text}")
    if code in DEADLOCKS or code == LOCK_WAIT:
        return ShardRefused(
            f"{endpoint}: another transaction holds the rows that this needs ({text}); nothing was changed, in {tries} tries",
            retry_after_ms=100,
        )
    if code in READ_ONLY:
        return ShardConnectionFailed(f"{endpoint} takes no writes now ({text}); is it a replica, or after a failover?")
    if code in _TOO_MANY:
        return ShardConnectionFailed(f"{endpoint} has no connection left for us ({text}); raise max_connections")
    if code == WRONG_PASSWORD and not endpoint.password:
        return ShardConnectionFailed(
            f"{endpoint} refuses our login ({text}): no password is configured; "
            "set PINLATER_MYSQL_PASSWORD or mysql.password_file, or check user and grants",
            retryable=False,
        )
    if code == WRONG_PASSWORD:
        return ShardConnectionFailed(
            f"{endpoint} refuses our login ({text}); check user, password and grants, or use TLS (mysql.tls): without it, "
            "a MySQL that has no RSA keys (caching_sha2_password), or a MariaDB that requires TLS, refuses the right password",
            retryable=False,
        )
    if code in _DENIED:
        return ShardConnectionFailed(
            f"{endpoint} refuses our login ({text}); check user, password and grants", retryable=False
        )
    if code == NO_DATABASE:
        return ShardConnectionFailed(
            f"{endpoint} is not there ({text}) and could not be made; make it, or grant CREATE", retryable=False
        )
    if code == NO_TABLE:
        return ShardConnectionFailed(
            f"{endpoint} does not have all tables ({text}); restore it, or restart the servers to have empty ones made"
        )
    if code in _PACKET:
        return ShardRefused(f"{endpoint}: {text}; raise max_allowed_packet", retryable=False)
    return ShardConnectionFailed(f"{endpoint}: {text}")


def is_ours(error: Exception) -> bool:
    """Returns whether the error comes from the database, and not from a defect of this program."""
    if isinstance(error, driver.ProgrammingError):
        return code_of(error) == NO_TABLE  # dropped, or the database is an empty one under the old one's address
    return isinstance(error, DatabaseConnectionLost | driver.MySQLError)

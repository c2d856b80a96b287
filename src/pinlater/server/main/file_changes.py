"""Administrative changes that a server takes from its files: tokens, shards, limits of queues, and the set of servers.

Several processes and servers may read one file. They report one change with the time of the file, so that listeners can see that it is
the same. A change names the user whose command changed the file, if the command has recorded the user, and otherwise the file. Weakness:
nothing reports a change that is made while no server runs, or one that is reverted within a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pinlater.domain.caller_names import NamedCaller
from pinlater.server.access.tokens import Token, quota_fields
from pinlater.server.config.file_authors import FileAuthor
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.sharding.reload import MapChange

TOKENS_FILE, SHARD_FILE, LIMITS_FILE, SERVER_SET_FILE = "tokens file", "shard file", "limits file", "server set"
TOKEN_ADDED, TOKEN_CHANGED, TOKEN_REMOVED = "tokenAdded", "tokenChanged", "tokenRemoved"
LIMIT_CHANGED, LIMITS_CHANGED, SERVERS_CHANGED = "limitChanged", "limitsChanged", "serverSetChanged"
# Names of the changes of a map of shards, by the field of `MapChange`.
SHARD_CHANGES: Mapping[str, str] = {
    "added": "shardAdded",
    "moved": "shardMoved",
    "draining": "shardDraining",
    "taking_enqueues": "shardTakesEnqueues",
    "removed": "shardRemoved",
}
_TEXTS_MAX, _TEXT_MAX = 20, 200
_LIMITS_MAX = 100
# An older time is that of a file that was copied with its time, and a time in the future is wrong: then the time of the server counts.
_AGE_MS_MAX = 60_000


def changed_ms(path: Path | None, now_ms: int) -> int:
    """Returns when the file was changed, or now if its time is impossible. Blocks while it reads the file's status."""
    try:
        at_ms = now_ms if path is None else path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return now_ms
    return at_ms if now_ms - _AGE_MS_MAX <= at_ms <= now_ms else now_ms


def token_changes(
    before: Sequence[Token], after: Sequence[Token], at_ms: int, authors: Mapping[str, FileAuthor] = {}
) -> list[AdministrativeChange]:
    """Returns the differences, in the order of the names. A token never comes with its secret or its digest. `authors`: by names of
    tokens.
    """
    old, new = {token.name: token for token in before}, {token.name: token for token in after}
    found = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            found.append(_change(TOKENS_FILE, authors.get(name), TOKEN_ADDED, at_ms, _shown(new[name])))
        elif name not in new:
            found.append(_change(TOKENS_FILE, authors.get(name), TOKEN_REMOVED, at_ms, _shown(old[name])))
        elif old[name] != new[name]:
            renewed = {"new_secret": True} if old[name].digest != new[name].digest else {}
            shown = {**_shown(new[name]), **renewed}
            found.append(_change(TOKENS_FILE, authors.get(name), TOKEN_CHANGED, at_ms, shown))
    return found


def shard_changes(change: MapChange, at_ms: int, authors: Mapping[str, FileAuthor] = {}) -> list[AdministrativeChange]:
    """Returns the changes of a server's map of shards. Shards are named, without their addresses, which contain users. `authors`: by these
    names.
    """
    return [
        _change(
            SHARD_FILE,
            authors.get(shard),
            operation,
            at_ms,
            {"shard": shard, "lost": True} if shard in change.lost else {"shard": shard},
        )
        for field, operation in SHARD_CHANGES.items()
        for shard in getattr(change, field)
    ]


def limit_changes(before: Mapping[str, float], after: Mapping[str, float], at_ms: int) -> list[AdministrativeChange]:
    """Returns which queues have another limit in jobs a second, None for none, by their names; one change for all if there are over a
    hundred.
    """
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if len(changed) > _LIMITS_MAX:
        return [_change(LIMITS_FILE, None, LIMITS_CHANGED, at_ms, {"queues": len(changed)})]
    return [
        _change(
            LIMITS_FILE,
            None,
            LIMIT_CHANGED,
            at_ms,
            {"jobs_per_second": after.get(name), "before": before.get(name)},
            queue=name[:_TEXT_MAX],
        )
        for name in changed
    ]


def server_set_changes(before: int | None, after: int | None, at_ms: int) -> list[AdministrativeChange]:
    """Returns how many servers share the limits of the queues, if that number has changed."""
    if before == after:
        return []
    return [_change(SERVER_SET_FILE, None, SERVERS_CHANGED, at_ms, {"servers": after, "before": before})]


def _shown(token: Token) -> Mapping[str, object]:
    shown: dict[str, object] = {"token": token.name, "roles": [role.value for role in token.roles]}
    shown["queues"] = [pattern[:_TEXT_MAX] for pattern in token.queues[:_TEXTS_MAX]]
    if token.expires_at_ms is not None:
        shown["expires_at_ms"] = token.expires_at_ms
    if token.speaks_for_others:
        shown["speaks_for_others"] = True
    return {**shown, **quota_fields(token.quota)}


def _change(
    file: str, author: FileAuthor | None, operation: str, at_ms: int, fields: Mapping[str, object], queue: str = ""
) -> AdministrativeChange:
    who, source, address = (file, "", "") if author is None else (author.user, file, author.host)
    return AdministrativeChange(operation, queue, fields, NamedCaller(who), source, address, at_ms=at_ms)

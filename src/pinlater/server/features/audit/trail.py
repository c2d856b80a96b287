"""The audit of all servers: entries are written to any shard that answers, and read from all shards.

An entry may be on two shards, if an answer of the first was lost; readers see it once. Filters apply here, and not in the stores: a page
reads a bounded number of entries, so it may contain few although more follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec.structs import asdict, replace

from pinlater.domain.audit import ENTRIES_A_PAGE_MAX, entry_id, first_id_at
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, NoHealthyShards, Unavailable
from pinlater.server.features.audit.buffer import AuditBuffer
from pinlater.server.features.audit.settings import AuditSettings
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import AddToTrail, ListTrail
from pinlater.server.storage.values import TRAIL_END, TrailEntry
from pinlater.wire.generated.structs import AuditEntry, AuditPage, AuditRequest

READ_MAX = 5_000
"""How many entries of a shard one page reads at most."""
_READ_AT_ONCE = 500
_CONTINUATION = re.compile(r"\d{13}-[0-9a-f]{14}", re.ASCII)


class AuditTrail:
    """Keeps the audit for one server."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._metrics = service.metrics
        self._settings = service.of(AuditSettings)
        self._identity = service.identity
        self.buffer = AuditBuffer(self._store, service.metrics, service.clock, service.random)

    def note(self, change: AdministrativeChange) -> None:
        """Adds an entry for a change that has ended; returns at once."""
        if self._settings.stores:
            self.buffer.add(replace(entry_for(change), server=self._identity.address))

    async def keep(self, entries: Sequence[AuditEntry]) -> None:
        """Stores entries of another process of this server. Raises `Unavailable`."""
        await self._store([replace(entry, server=self._identity.address) for entry in entries])

    async def read(self, wanted: AuditRequest) -> AuditPage:
        """Returns a page, newest first, including entries that this server has not written yet. Raises `ContinuationInvalid`,
        `InvalidArgument`.
        """
        if not 1 <= wanted.limit <= ENTRIES_A_PAGE_MAX:
            raise InvalidArgument(f"limit must be from 1 to {ENTRIES_A_PAGE_MAX}, not {wanted.limit}")
        if wanted.continuation and not _CONTINUATION.fullmatch(wanted.continuation):
            raise ContinuationInvalid.of(wanted.continuation)
        since = "" if wanted.since_ms is None else first_id_at(wanted.since_ms)
        before = TRAIL_END if wanted.until_ms is None else first_id_at(wanted.until_ms)
        before = min(before, wanted.continuation or TRAIL_END)
        found: list[AuditEntry] = []
        incomplete = False
        needles = _needles(wanted)
        count = wanted.limit  # enough if no filter excludes any
        for _ in range(READ_MAX // _READ_AT_ONCE):
            read, missing, ended = await self._read(since, before, count)
            incomplete |= missing
            for record in read:
                before = record.id
                if all(needle in record.content for needle in needles) and _fits(entry := unpacked(record), wanted):
                    found.append(entry)
                    if len(found) == wanted.limit:
                        return AuditPage(found, before, incomplete)
            if ended:
                return AuditPage(found, None, incomplete)
            count = _READ_AT_ONCE
        return AuditPage(found, before, incomplete)

    async def _read(self, since: str, before: str, count: int) -> tuple[Sequence[TrailEntry], bool, bool]:
        """The next entries of all shards, whether a shard is missing, and whether these are the last ones."""
        answers = await on_reachable(
            self._shards, self._metrics, "getAudit", lambda shard: shard.store.submit(ListTrail(since, before, count))
        )
        records = {record.id: record for answer in answers for record in answer}
        records |= {entry.id: packed(entry) for entry in self.buffer.waiting if since <= entry.id < before}
        ids = sorted(records, reverse=True)
        ended = len(ids) <= count and all(len(answer) < count for answer in answers)
        # Each shard gave at most `count` entries, its newest: only among the first `count` of all is none missing.
        return [records[name] for name in ids[:count]], len(answers) < len(self._shards), ended

    async def _store(self, entries: Sequence[AuditEntry]) -> None:
        """Stores the entries on one shard, or on another one if that fails. Raises the last failure."""
        records = [packed(entry) for entry in entries]
        failure: Unavailable = NoHealthyShards()
        for shard in self._in_order():
            try:
                await shard.store.submit(AddToTrail(records, self._settings.max_entries))
            except Unavailable as error:
                failure = error
            else:
                return
        raise failure

    def _in_order(self) -> Iterable[ShardLanes]:
        """Returns the reachable shards, with those that stay and are quick first."""
        shards = self._shards.in_reach()
        self._shards.random.shuffle(shards)
        return sorted(shards, key=lambda shard: (not shard.takes_enqueues, shard.stalled or shard.fullness.full))


def entry_for(change: AdministrativeChange) -> AuditEntry:
    """The entry for a change, without an id if the change is new. Otherwise the id is made from its time and from the change itself, so
    that a change that several servers report is kept once.
    """
    name, arguments, queue = "", _shown(change.fields), change.queue
    if change.at_ms is not None:
        told = " ".join(text for text in (change.operation, arguments, queue) if text)
        digest = int.from_bytes(blake2b(told.encode("utf-8", "replace"), digest_size=7).digest())
        name = entry_id(change.at_ms, digest >> 32, digest)
    return AuditEntry(
        name,
        change.at_ms or 0,
        change.caller.who,
        list(change.caller.roles),
        change.source,
        change.address,
        change.operation,
        queue,
        arguments,
        change.jobs,
        change.outcome.value,
        change.detail,
        "",
    )


def _shown(fields: Mapping[str, object]) -> str:
    """Returns an argument in its short form: a number, a word or a flag. JSON has no infinite numbers, so these become strings."""
    try:
        return json.dumps(fields, allow_nan=False)
    except ValueError:
        return json.dumps({name: str(value) for name, value in fields.items()})


def packed(entry: AuditEntry) -> TrailEntry:
    """Returns the entry in the form in which a store keeps it: the fields by name, so that servers of other versions can read it."""
    fields = {name: value for name, value in asdict(entry).items() if name != "id" and value not in ("", None)}
    return TrailEntry(entry.id, _as_json(fields))


def _fits(entry: AuditEntry, wanted: AuditRequest) -> bool:
    """Returns whether the entry has the wanted queue, caller and operation."""
    return (
        (not wanted.queue or entry.queue == wanted.queue)
        and (not wanted.who or entry.who == wanted.who)
        and (not wanted.operation or entry.operation == wanted.operation)
    )


def _needles(wanted: AuditRequest) -> list[bytes]:
    """Returns the record of each entry that matches, so that the others need not be decoded."""
    chosen = {"queue": wanted.queue, "who": wanted.who, "operation": wanted.operation}
    return [_as_json({name: value})[1:-1] for name, value in chosen.items() if value]


def _as_json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def unpacked(record: TrailEntry) -> AuditEntry:
    """Returns the entry. Fields of newer versions are left out. An entry that can't be read is marked as such."""
    try:
        fields = json.loads(record.content)

        def text(name: str) -> str:
            return str(fields.get(name, ""))

        return AuditEntry(
            record.id,
            int(fields["at_ms"]),
            text("who"),
            [str(role) for role in fields.get("roles", ())],
            text("source"),
            text("address"),
            text("operation"),
            text("queue"),
            text("arguments"),
            None if fields.get("jobs") is None else int(fields["jobs"]),
            text("outcome"),
            text("detail"),
            text("server"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return AuditEntry(record.id, _time_of(record.id), "", [], "", "", "(unreadable)", "", "", None, "", "", "")


def _time_of(name: str) -> int:
    digits = name.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0

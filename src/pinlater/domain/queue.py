"""Queues: the rules for their names, and the settings that the store keeps with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pinlater.domain.errors import QueueNameInvalid, QueueNameTooLong
from pinlater.domain.wording import counted, span

QUEUE_NAME_CHARS_MAX = 64
QUEUE_NAME_RULE = f"a queue's name is 1 to {QUEUE_NAME_CHARS_MAX} ASCII letters, digits and underscores"
_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


def check_queue_name(name: str) -> str:
    """Returns `name` if a queue may have it. Up to 50 characters work on every store by contract, 65 on none."""
    if _NAME.fullmatch(name) is None:
        raise QueueNameInvalid.of(name)
    if len(name) > QUEUE_NAME_CHARS_MAX:
        raise QueueNameTooLong.of(name, QUEUE_NAME_CHARS_MAX)
    return name


def is_queue_name(name: str) -> bool:
    """Returns whether a queue may have this name."""
    return len(name) <= QUEUE_NAME_CHARS_MAX and _NAME.fullmatch(name) is not None


class QueueConfig(NamedTuple):
    """What `configureQueue` sets; None means the server's default. The store keeps it with the queue."""

    # Their valid values are in `domain/queue_settings.py`, the defaults of servers in `server/operations/job_settings.py`.

    max_jobs_per_second: float | None = None
    claim_timeout_ms: int | None = None
    succeeded_ttl_ms: int | None = None
    failed_ttl_ms: int | None = None
    max_backlog: int | None = None
    default_attempts: int | None = None
    default_expiry_ms: int | None = None
    burst: int | None = None
    partitions: int | None = None
    max_in_hand_per_key: int | None = None
    retry_place: str | None = None
    after_failure: str | None = None


TO_BACK, STOP = "to_back", "stop"
IN_HAND_PER_KEY_MAX = 100
ALL_JOBS = "*"
"""The ordering key of all jobs of a queue that is ordered as a whole."""
_NOTHING_SET = QueueConfig()


class Versions(NamedTuple):
    """The version of the last change of a queue's settings, its pause switch and its automatic number of partitions. Later versions are
    greater as strings; '' precedes all: never changed, or changed by a server that kept no versions."""

    config: str = ""
    paused: str = ""
    auto_partitions: str = ""

    def following(self, now_ms: int, random_bits: int) -> str:
        """Returns the version of a change that is made now, later than all of these. Changes of two servers never have the same version."""
        return f"{max(now_ms, _ms(max(self)) + 1):013d}.{random_bits:016x}"


def _ms(version: str) -> int:
    """The time of the change, by the clock of its server."""
    return int(version.partition(".")[0] or 0)


class Life(NamedTuple):
    """When a queue was last made, when a queue of this name was last deleted before that, and when one was last made as an ordered one; 0
    if that is not known, or never happened.

    All are times of servers' clocks, each later than all times that its server saw on the reachable shards.
    """

    made_ms: int = 0
    deleted_ms: int = 0
    ordered_ms: int = 0

    @property
    def ordered(self) -> bool:
        """Whether the queue is ordered as a whole: all its jobs are under one ordering key (`ALL_JOBS`)."""
        return self.ordered_ms > self.deleted_ms

    @property
    def over(self) -> bool:
        """Whether the newest deletion is not earlier than the newest creation, so that the queue does not exist."""
        return 0 < self.deleted_ms >= self.made_ms

    def joined(self, other: Life) -> Life:
        """The newest of each that two shards know of."""
        return Life(*map(max, self, other))


LIFE_UNKNOWN = Life()


class Home(NamedTuple):
    """Where the jobs with ordering keys of a queue are stored, as one shard knows it. Each version is made by one transaction of the
    shard that `Home.shard` named before.

    `shard`: the home; '' before the first such job.
    `version`: the greater one is newer; 0 before the first such job; it contains a time in ms.
    `former`: the shard that was the home before; '' once its jobs no longer come first.
    `lifted`: the former one no longer has such jobs, and the first jobs of the keys are being made ready.
    `claim`: the shard that is to be the next home, if all shards agree.
    `lift_due`: jobs on this shard may still wait as for a former home, although the row no longer requires it.
    """

    shard: str = ""
    version: int = 0
    former: str = ""
    lifted: bool = False
    claim: str = ""
    lift_due: bool = False

    @property
    def told(self) -> Home:
        """Returns the home in the form that is sent to other shards."""
        return self._replace(claim="", lift_due=False)

    @property
    def waits(self) -> bool:
        """Whether all jobs with ordering keys there wait for those on the former home."""
        return bool(self.former) and not self.lifted

    def is_at(self, shard: str) -> bool:
        """Returns whether that shard accepts the jobs with ordering keys, according to its own row."""
        return self.version > 0 and self.shard == shard

    def newer_than(self, other: Home) -> bool:
        """Returns whether it comes after the other. If a shard that counted as lost was not lost, two homes may have one version; then
        all servers prefer the same.
        """
        return (self.version, not self.former, self.shard) > (other.version, not other.former, other.shard)


NO_HOME = Home()


class PartitionNumber(NamedTuple):
    """How many partitions a queue is to have.

    `automatic`: the servers chose the number, and no operator.
    `since_ms`: when they chose it, or when an operator last changed the settings, or None if that is not known, or never happened.
    """

    number: int
    automatic: bool
    since_ms: int | None = None

    def told(self, now_ms: int) -> str:
        """Returns `2 partitions (automatic, for 5m)`, for example. An operator may have changed another setting since."""
        by = "automatic" if self.automatic else "set by an operator"
        if self.automatic and self.since_ms is not None:
            by += f", for {span(now_ms - self.since_ms)}"
        elif self.since_ms is not None:
            by += f", settings changed {span(now_ms - self.since_ms)} ago"
        return f"{counted(self.number, 'partition')} ({by})"


class Queue(NamedTuple):
    """A queue as the store knows it.

    `paused_by`: the source of the caller that paused it; '' if it is not known, or not paused.
    `auto_partitions`: how many partitions it is to have according to the servers; in force while its settings name no number.
    `asks_order`: it is to be ordered on shards without the queue, and elsewhere as it is. Never stored.
    `home`: where its jobs with ordering keys are.
    """

    name: str
    config: QueueConfig = QueueConfig()
    paused: bool = False
    versions: Versions = Versions()
    life: Life = Life()
    paused_by: str = ""
    auto_partitions: int = 1
    asks_order: bool = False
    home: Home = NO_HOME

    @property
    def in_order(self) -> bool:
        """Whether it is ordered as a whole, or is to be."""
        return self.life.ordered or self.asks_order

    @property
    def partitions(self) -> PartitionNumber:
        """The number in force."""
        number, versions = self.config.partitions, self.versions
        if number is None:
            return PartitionNumber(self.auto_partitions, True, self.auto_changed_ms or None)
        return PartitionNumber(number, False, _ms(versions.config) or None)

    @property
    def paused_at_ms(self) -> int | None:
        """When it was paused, by the clock of the server that did it, or None if it is not paused, or that is not known."""
        return (_ms(self.versions.paused) or None) if self.paused else None

    @property
    def auto_changed_ms(self) -> int:
        """When the automatic number of partitions was last changed, or 0 for never."""
        return _ms(self.versions.auto_partitions)

    @property
    def newest_ms(self) -> int:
        """The newest time of the queue."""
        return max(self.life.made_ms, self.life.deleted_ms, _ms(max(self.versions)))

    def changed(
        self,
        config: QueueConfig | None,
        paused: bool | None,
        version: str,
        by: str = "",
        *,
        auto_partitions: int | None = None,
    ) -> Queue:
        """Returns the queue with other settings, the pause switch and/or the automatic number of partitions (None leaves it unchanged).
        Fields with a later or equal version stay as they are, and a change from before the last deletion does nothing; '' is a change by
        a server that keeps no versions, and always counts. `by`: the caller that pauses the queue.
        """
        if version and self.life.deleted_ms and _ms(version) <= self.life.deleted_ms:
            return self
        queue = self
        if config is not None and (not version or version > queue.versions.config):
            queue = queue._replace(config=config, versions=queue.versions._replace(config=version))
        if paused is not None and (not version or version > queue.versions.paused):
            versions = queue.versions._replace(paused=version)
            queue = queue._replace(paused=paused, versions=versions, paused_by=by if paused else "")
        if auto_partitions is not None and version > queue.versions.auto_partitions:
            versions = queue.versions._replace(auto_partitions=version)
            queue = queue._replace(auto_partitions=auto_partitions, versions=versions)
        return queue

    def newest(self, other: Queue) -> Queue:
        """Merges two shards' rows of one queue: the newest settings, pause switch and automatic number of partitions, this one's if
        neither is newer; nothing that was set before the last deletion that either knows."""
        queue = self
        if self.life != other.life:
            life = self.life.joined(other.life)
            queue, other = self.with_life(life), other.with_life(life)
        if other.versions.config > queue.versions.config:
            queue = queue.changed(other.config, None, other.versions.config)
        if other.versions.paused > queue.versions.paused:
            queue = queue.changed(None, other.paused, other.versions.paused, other.paused_by)
        if other.versions.auto_partitions > queue.versions.auto_partitions:
            version = other.versions.auto_partitions
            queue = queue.changed(None, None, version, auto_partitions=other.auto_partitions)
        if other.home.newer_than(queue.home):
            queue = queue._replace(home=other.home.told)
        return queue

    def row_of(self, shard: str, other: Queue) -> Queue:
        """Returns this row of a shard, merged with another row like in `newest`. Jobs there that wait for a former home are to be
        made ready (`lift_due`) if the row no longer requires that they wait: for example, the shard was lost and is back.
        """
        queue, before = self.newest(other), self.home
        if queue.home != before:
            lift_due = before.lift_due or (before.is_at(shard) and bool(before.former))
            queue = queue._replace(home=queue.home._replace(lift_due=lift_due))
        return queue

    def with_life(self, life: Life) -> Queue:
        """Returns the queue with another life, which is not earlier. Settings from before a later deletion are dropped."""
        queue = self._replace(life=life)
        if life.deleted_ms > self.life.deleted_ms:
            if self.life.made_ms <= life.deleted_ms:
                queue = queue._replace(home=NO_HOME)
            if _ms(queue.versions.config) <= life.deleted_ms:
                queue = queue._replace(config=_NOTHING_SET, versions=queue.versions._replace(config=""))
            if _ms(queue.versions.paused) <= life.deleted_ms:
                queue = queue._replace(paused=False, versions=queue.versions._replace(paused=""), paused_by="")
            if _ms(queue.versions.auto_partitions) <= life.deleted_ms:
                queue = queue._replace(auto_partitions=1, versions=queue.versions._replace(auto_partitions=""))
        return queue

    def made_after(self, deleted_ms: int) -> Queue:
        """Returns the queue as created by a shard that deleted a queue of this name at `deleted_ms` (0: never), or none if its life is
        `over`.
        """
        life = self.life._replace(ordered_ms=self.life.made_ms) if self.asks_order else self.life
        return self._replace(home=self.home.told).with_life(life.joined(Life(0, deleted_ms)))._replace(asks_order=False)


def queue_of(name: str, text: str, paused: bool) -> Queue:
    """Returns the queue from its stored form: `text` holds the settings. Unknown additions of newer programs are ignored."""
    # Most queues were never changed, and there may be thousands: these are read without the parser.
    if text == "{}":
        return Queue(name, _NOTHING_SET, paused)
    unchanged = _UNCHANGED.fullmatch(text)
    if unchanged is not None:
        life = Life(int(unchanged[1]), int(unchanged[2]), int(unchanged[3] or 0))
        return Queue(name, _NOTHING_SET, paused, _NO_VERSIONS, life)
    import json  # a client never comes here

    found = json.loads(text)
    config = QueueConfig(**{field: found[field] for field in QueueConfig._fields if field in found})
    versions = Versions(*found.get(_VERSIONS_KEY, ())[: len(Versions._fields)])
    life = Life(*found.get(_LIFE_KEY, ())[: len(Life._fields)])
    by = str(found.get(_PAUSED_BY_KEY, "")) if paused else ""
    home = Home(*found.get(_HOME_KEY, ())[: len(Home._fields)])
    return Queue(name, config, paused, versions, life, by, found.get(_AUTO_PARTITIONS_KEY, 1), home=home)


def settings_text(queue: Queue) -> str:
    """Returns the stored form of a queue without its name and switch; only settings that are set. An older program ignores fields that it
    does not know, and drops them with its next change: then the automatic number of partitions is 1 again."""
    settings: dict[str, object] = {}
    if any(queue.life):
        settings[_LIFE_KEY] = list(queue.life if queue.life.ordered_ms else queue.life[:2])
    settings |= {field: value for field, value in queue.config._asdict().items() if value is not None}
    if any(queue.versions):
        settings[_VERSIONS_KEY] = list(queue.versions if queue.versions.auto_partitions else queue.versions[:2])
    if queue.paused_by:
        settings[_PAUSED_BY_KEY] = queue.paused_by
    if queue.versions.auto_partitions:
        settings[_AUTO_PARTITIONS_KEY] = queue.auto_partitions
    if queue.home != NO_HOME:
        settings[_HOME_KEY] = list(queue.home)
    import json

    return json.dumps(settings)


_NO_VERSIONS = Versions()
_VERSIONS_KEY, _LIFE_KEY, _PAUSED_BY_KEY, _AUTO_PARTITIONS_KEY = "versions", "life", "paused_by", "auto_partitions"
_HOME_KEY = "home"
_UNCHANGED = re.compile(r'\{"life": \[([0-9]+), ([0-9]+)(?:, ([0-9]+))?\]\}')


class PriorityCounts(NamedTuple):
    """A queue's jobs of one priority. `pending` includes `future`, the jobs that aren't due yet. Totals: since the queue was made.
    `oldest_due_at_ms`: since when the job that waits longest has been due; None if no job is due, or if the server does not report it.
    `behind_key`: those of `future` that wait behind others of their ordering keys; 10,000 of a shard stand for that or more."""

    priority: int
    pending: int = 0
    future: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    enqueued_total: int = 0
    claimed_total: int = 0
    succeeded_total: int = 0
    failed_total: int = 0
    retried_total: int = 0
    oldest_due_at_ms: int | None = None
    behind_key: int = 0


class QueueCounts(NamedTuple):
    """A shard's counts of one priority of a queue, from counters, never from a scan. `future` is as of the last sweep, at most 5 s
    ago."""

    queue: str
    counts: PriorityCounts


class Rates(NamedTuple):
    """Jobs a second over the last minute (less right after a start)."""

    enqueued: float = 0.0
    claimed: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    retried: float = 0.0


_SUMMED = tuple(field for field in PriorityCounts._fields if field not in {"priority", "oldest_due_at_ms"})


def merge_counts(found: Iterable[PriorityCounts]) -> list[PriorityCounts]:
    """Returns the sum of several shards' counts of one queue, by priority."""
    merged: dict[int, PriorityCounts] = {}
    for counts in found:
        before = merged.get(counts.priority)
        merged[counts.priority] = counts if before is None else _sum(before, counts)
    return [merged[priority] for priority in sorted(merged)]


class CountsByKind:
    """Counts of several shards, added up by queue and priority piece by piece."""

    def __init__(self) -> None:
        self._merged: dict[tuple[str, int], QueueCounts] = {}

    def add(self, rows: Iterable[QueueCounts]) -> None:
        merged = self._merged
        for row in rows:
            kind = row.queue, row.counts.priority
            before = merged.get(kind)
            merged[kind] = row if before is None else QueueCounts(row.queue, _sum(before.counts, row.counts))

    def rows(self) -> list[QueueCounts]:
        """The added counts, by queue and priority."""
        return [self._merged[key] for key in sorted(self._merged)]


def _sum(one: PriorityCounts, other: PriorityCounts) -> PriorityCounts:
    oldest = [at for at in (one.oldest_due_at_ms, other.oldest_due_at_ms) if at is not None]
    numbers = {field: getattr(one, field) + getattr(other, field) for field in _SUMMED}
    return one._replace(oldest_due_at_ms=min(oldest) if oldest else None, **numbers)

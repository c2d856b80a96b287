"""What this server has recently heard from workers, in bounded memory, for operators. No operation depends on it.

An entry belongs to a source and a process. A process identifies itself by a random number, so a restarted process has a new entry, whose
counts begin at 0. Callers without a number share the entry 0 of their source. Claims name their source only, so lost claims are counted
in that entry, too.

Weakness: a caller that invents many sources pushes other workers out; `ServerWorkers.forgotten` counts them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence

from pinlater.domain.workers import LOST_MAX, LostClaim, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.dispatch.identity import SOURCE_CHARS_MAX, kept_source
from pinlater.server.operations.claim_events import ClaimEvents
from pinlater.server.operations.values import Caller

WORKERS_MAX = 2_000
KEPT_S = 15 * 60
QUEUES_MAX = 8
"""The most queues of one entry: those that it asked for last."""
TEXT_CHARS_MAX = 100
"""The most characters of each text that a process reports about itself."""
NUMBER_MAX = 253_402_300_799_999
"""The highest value of each number that it reports: as a time, the end of the year 9999. A higher number counts as not reported."""

_SPAN_S = 300
_SPANS, _SPANS_LATELY = 12, 2
_ONCE_S = 60.0  # claims that time out within it count as one time-out


class HourCount:
    """Counts events of the last hour, in spans of five minutes."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: dict[int, int] = {}

    def add(self, number: int, now_s: float) -> None:
        """Counts these events now."""
        now = int(now_s) // _SPAN_S
        spans = self._spans
        spans[now] = spans.get(now, 0) + number
        if len(spans) > _SPANS:
            self._spans = {span: count for span, count in spans.items() if span > now - _SPANS}

    def total(self, now_s: float, spans: int = _SPANS) -> int:
        """Returns the number in the last hour, or in that number of spans, including the present one, which has just begun."""
        after = int(now_s) // _SPAN_S - spans
        return sum(count for span, count in self._spans.items() if span > after)


class _WorkerInQueue:
    """A worker in one queue. Counters are created on demand."""

    __slots__ = ("asked_s", "handed_out", "late", "timed_out", "timed_out_from_s", "timed_out_times")

    def __init__(self) -> None:
        self.asked_s: float | None = None
        self.handed_out: HourCount | None = None
        self.timed_out: HourCount | None = None
        self.timed_out_times: HourCount | None = None
        self.timed_out_from_s = 0.0  # when the last of these time-outs began
        self.late: HourCount | None = None

    def lost_claim(self, now_s: float) -> None:
        """A claim ended at its deadline."""
        if self.timed_out is None or self.timed_out_times is None:
            self.timed_out, self.timed_out_times = HourCount(), HourCount()
            self.timed_out_from_s = now_s - _ONCE_S
        self.timed_out.add(1, now_s)
        if now_s - self.timed_out_from_s >= _ONCE_S:
            self.timed_out_times.add(1, now_s)
            self.timed_out_from_s = now_s

    def shown(self, queue: str, now_s: float) -> WorkerQueue:
        return WorkerQueue(
            queue,
            _ago_ms(self.asked_s, now_s),
            _total(self.handed_out, now_s),
            _total(self.timed_out, now_s),
            _total(self.late, now_s),
            _total(self.timed_out, now_s, _SPANS_LATELY),
            _total(self.late, now_s, _SPANS_LATELY),
            _total(self.timed_out_times, now_s),
        )


class _Entry:
    """A process of a source. `event_s`: the time of its last event. All times are monotonic."""

    __slots__ = ("claim_ms", "event_s", "heard_s", "info", "lost", "queues", "said_s")

    def __init__(self) -> None:
        self.event_s = 0.0
        self.heard_s: float | None = None
        self.queues: OrderedDict[str, _WorkerInQueue] = OrderedDict()
        self.claim_ms: int | None = None
        self.info: WorkerInfo | None = None
        self.said_s: float | None = None
        self.lost: deque[tuple[str, str, float]] | None = None  # the newest lost claims: queue, descriptor, time

    def of(self, queue: str) -> _WorkerInQueue:
        """The entry of the queue, which is now the newest."""
        found = self.queues.get(queue)
        if found is None:
            found = self.queues[queue] = _WorkerInQueue()
            if len(self.queues) > QUEUES_MAX:
                self.queues.popitem(last=False)
        elif len(self.queues) > 1:
            self.queues.move_to_end(queue)
        return found

    def shown(self, source: str, process: int, now_s: float) -> WorkerStatus:
        return WorkerStatus(
            source,
            process,
            _ago_ms(self.heard_s, now_s),
            [seen.shown(queue, now_s) for queue, seen in reversed(self.queues.items())],
            self.claim_ms,
            self.info,
            _ago_ms(self.said_s, now_s),
            [LostClaim(queue, name, _span_ms(at_s, now_s)) for queue, name, at_s in reversed(self.lost)]
            if self.lost
            else (),
        )


Asking = tuple[_Entry, _WorkerInQueue]
"""A worker that asks for jobs, and where that is counted."""
Known = tuple[tuple[str, int], _Entry]


class WorkerRegistry(ClaimEvents):
    """The workers of one server. Every request of a worker makes one call here, which costs about a microsecond."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._entries: OrderedDict[tuple[str, int], _Entry] = OrderedDict()  # the longest without an event first
        self._forgotten = HourCount()

    def __len__(self) -> int:
        return len(self._entries)

    # --- events ---------------------------------------------------------------------------------------------------------
    def asked(self, caller: Caller, queue: str) -> Asking:
        entry, now_s = self._heard(caller)
        seen = entry.queues.get(queue)
        if seen is None or len(entry.queues) > 1:
            seen = entry.of(queue)
        seen.asked_s = now_s
        return entry, seen

    def handed_out(self, asking: Asking, jobs: int, claim_ms: int) -> None:
        entry, seen = asking
        entry.event_s = entry.heard_s = now_s = self._monotonic()
        if seen.handed_out is None:
            seen.handed_out = HourCount()
        seen.handed_out.add(jobs, now_s)
        entry.claim_ms = claim_ms

    def renewed(self, caller: Caller, queue: str) -> None:
        entry, _ = self._heard(caller)
        entry.of(queue)

    def reported(self, caller: Caller) -> None:
        """Counts only if callers of the source name no process."""
        source = kept_source(caller.source)
        entry = self._entries.get((source, 0))
        if entry is not None and entry.heard_s is not None:
            entry, entry.heard_s = self._entry(source, 0)

    def late(self, caller: Caller, queue: str, number: int) -> None:
        entry, now_s = self._entry(kept_source(caller.source), 0)
        seen = entry.of(queue)
        if seen.late is None:
            seen.late = HourCount()
        seen.late.add(number, now_s)

    def timed_out(self, queue: str, sources: Mapping[str, str]) -> None:
        """Claims ended at their deadline: their sources by the descriptor of the job."""
        for descriptor, source in sources.items():
            entry, now_s = self._entry(source, 0)
            entry.of(queue).lost_claim(now_s)
            if entry.lost is None:
                entry.lost = deque(maxlen=LOST_MAX)
            entry.lost.append((queue, descriptor, now_s))

    # --- what is known ----------------------------------------------------------------------------------------------------
    def known(self) -> list[Known]:
        """Returns all entries, the newest event first, for `shown`. Workers without an event in the last quarter of an hour end the
        iteration."""
        self._end_old(self._monotonic())
        return list(reversed(self._entries.items()))

    def shown(self, entries: Sequence[Known]) -> list[WorkerStatus]:
        """Returns what is known about them. Takes up to 40 µs for each."""
        now_s = self._monotonic()
        return [entry.shown(*key, now_s) for key, entry in entries]

    @property
    def forgotten(self) -> int:
        """Returns the number of entries that were dropped for others in the last hour."""
        return self._forgotten.total(self._monotonic())

    def _heard(self, caller: Caller) -> tuple[_Entry, float]:
        source, process, said = caller
        if len(source) > SOURCE_CHARS_MAX:
            source = kept_source(source)
        entry, now_s = self._entry(source, process)
        entry.heard_s = now_s
        if said is not None and process:
            entry.info, entry.said_s = _bounded(said), now_s
        return entry, now_s

    def _entry(self, source: str, process: int) -> tuple[_Entry, float]:
        now_s = self._monotonic()
        key = (source, process)
        entry = self._entries.get(key)
        if entry is not None and now_s - entry.event_s > KEPT_S:
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry()
            if len(self._entries) > WORKERS_MAX:
                self._make_way(now_s)
        entry.event_s = now_s
        self._entries.move_to_end(key)
        return entry, now_s

    def _make_way(self, now_s: float) -> None:
        self._end_old(now_s)
        if len(self._entries) > WORKERS_MAX:
            self._entries.popitem(last=False)
            self._forgotten.add(1, now_s)

    def _end_old(self, now_s: float) -> None:
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now_s - entry.event_s <= KEPT_S:
                return
            del self._entries[key]


def _bounded(info: WorkerInfo) -> WorkerInfo:
    """Returns the reported values within their bounds. They are not checked on arrival, so that no claim fails because of them."""
    return WorkerInfo(
        info.library[:TEXT_CHARS_MAX],
        info.version[:TEXT_CHARS_MAX],
        info.host[:TEXT_CHARS_MAX],
        _number(info.pid),
        _number(info.concurrency),
        _number(info.running),
        _number(info.started_at_ms),
    )


def _number(said: int) -> int:
    return said if 0 <= said <= NUMBER_MAX else 0


def _ago_ms(at_s: float | None, now_s: float) -> int | None:
    return None if at_s is None else _span_ms(at_s, now_s)


def _span_ms(at_s: float, now_s: float) -> int:
    return max(0, round((now_s - at_s) * 1000))


def _total(count: HourCount | None, now_s: float, spans: int = _SPANS) -> int:
    return 0 if count is None else count.total(now_s, spans)

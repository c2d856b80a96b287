"""The load: one process, a plain epoll loop, requests encoded beforehand. `python -m bench.load` takes a plan on stdin.

It must stay lighter than the server, so it keeps no objects a job and reads no more of an answer than it needs; its own CPU time is in
its report, so that a reader sees when the load and not the server was measured. Weakness: one process, so one core, is the most it uses.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from bench import frames
from pinlater.domain.descriptor import shard_of
from pinlater.domain.rendezvous import rendezvous_home

BODY_BYTES = 100
# The failures of all connections are one group.
FAILURE = "TimeoutError: 10.0.0.{}:3306 gave no answer in 3.5 s"
# One buffer for all: making a large one for each read costs four times the read.
_BUFFER = memoryview(bytearray(256 * 1024))


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What to do. `kind`: enqueue, enqueue with key, claim (a dequeue and then an ack, two requests) or fail (whose ack says that the jobs
    failed). `rate` makes it an open loop.

    `ports`: of several servers, over which connections are spread instead of `port`. `owner_ports`: of clients that know who owns the
    queue, by shard. `first_connection`: its number, if several loads run at once.
    """

    port: int
    queue: str
    kind: str = "enqueue"
    connections: int = 64
    jobs_per_request: int = 1
    seconds: float = 2.0
    warmup_seconds: float = 0.3
    jobs_max: int | None = None
    rate: float | None = None
    host: str = "127.0.0.1"
    ports: Sequence[int] = ()
    owner_ports: Mapping[str, int] = field(default_factory=dict)
    first_connection: int = 0

    def port_of(self, number: int) -> int:
        """Where connection `number` goes."""
        return self.ports[number % len(self.ports)] if self.ports else self.port


@dataclass(slots=True)
class Report:
    """What happened between the end of the warm-up and the end."""

    jobs: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    requests: int = 0
    empty: int = 0
    refused: int = 0
    first_refusal: str = ""
    load_cpu_share: float = 0.0
    latency_ms: dict[str, float] | None = None


class Conversation(Protocol):
    """One connection's endless talk: `first` opens it, `answer` takes a reply and gives (jobs done, next request).

    `port`: where the newest request goes.
    """

    port: int

    def first(self) -> bytes: ...

    def answer(self, reply: bytes) -> tuple[int, bytes]: ...


class Enqueuing:
    """The same enqueue again and again."""

    def __init__(self, plan: BenchmarkPlan, number: int) -> None:
        body = f"{number:08d}".encode().ljust(BODY_BYTES, b"x")
        self._frame = frames.enqueue(plan.queue, [body] * plan.jobs_per_request)
        self._jobs = plan.jobs_per_request
        self.port = plan.port_of(number)

    def first(self) -> bytes:
        return self._frame

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        frames.result_at(reply)
        return self._jobs, self._frame


class KeyedEnqueuing:
    """An enqueue with a request key of its own each time."""

    def __init__(self, plan: BenchmarkPlan, number: int) -> None:
        body = f"{number:08d}".encode().ljust(BODY_BYTES, b"x")
        self._frames = frames.KeyedEnqueue(plan.queue, [body] * plan.jobs_per_request, f"{number}-")
        self._jobs = plan.jobs_per_request
        self.port = plan.port_of(number)
        self._owner_ports = plan.owner_ports
        self._shards = list(plan.owner_ports)

    def first(self) -> bytes:
        frame = self._frames.frame()
        if self._owner_ports:
            self.port = self._owner_ports[rendezvous_home(frames.key_of(frame), self._shards)]
        return frame

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        frames.result_at(reply)
        return self._jobs, self.first()


class Claiming:
    """A dequeue, then an ack of what it gave, and so on. Counts a job when its ack is answered."""

    def __init__(self, plan: BenchmarkPlan, number: int) -> None:
        self._owner_ports = plan.owner_ports
        self._turns = list(dict.fromkeys(plan.owner_ports.values())) or [plan.port_of(number)]
        self._turn = number
        self.port = plan.port_of(number)
        self._frame = frames.dequeue(plan.queue, plan.jobs_per_request)
        self._acks = frames.AckMaker(plan.queue, FAILURE.format(number) if plan.kind == "fail" else "")
        self._in_hand = 0
        self.empty = 0

    def first(self) -> bytes:
        self._turn += 1
        self.port = self._turns[self._turn % len(self._turns)]
        return self._frame

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        if self._in_hand:
            frames.result_at(reply)
            done, self._in_hand = self._in_hand, 0
            return done, self.first()
        descriptors = frames.claimed_descriptors(reply)
        if not descriptors:
            self.empty += 1
            return 0, self.first()
        self._in_hand = len(descriptors)
        if self._owner_ports:
            self.port = self._owner_ports.get(shard_of(descriptors[0].decode()), self.port)
        return 0, self._acks.frame(descriptors)


def converse(plan: BenchmarkPlan, number: int) -> Conversation:
    """The conversation of connection `number`."""
    if plan.kind in {"claim", "fail"}:
        return Claiming(plan, number)
    return KeyedEnqueuing(plan, number) if plan.kind == "enqueue with key" else Enqueuing(plan, number)


class LoadConnection:
    """A socket with the rest of a reply that has not come whole. If it knows several servers, a socket to each, one in use at a time."""

    __slots__ = ("buffer", "conversation", "due", "socket", "sockets", "started")

    def __init__(self, plan: BenchmarkPlan, number: int) -> None:
        self.sockets = {
            port: self._connect(plan.host, port) for port in {plan.port_of(number), *plan.owner_ports.values()}
        }
        self.socket = self.sockets[plan.port_of(number)]
        self.conversation = converse(plan, number)
        self.buffer = b""
        self.started = 0.0
        self.due: list[float] = []

    @staticmethod
    def _connect(host: str, port: int) -> socket.socket:
        opened = socket.create_connection((host, port), timeout=30)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.settimeout(None)  # a socket with a time-out polls before each call
        return opened

    def send(self, request: bytes) -> None:
        """Sends to where the conversation goes on."""
        self.socket = self.sockets[self.conversation.port]
        self.socket.sendall(request)

    def replies(self) -> list[bytes]:
        """Reads once; the whole frames that are there now."""
        size = self.socket.recv_into(_BUFFER)
        data = bytes(_BUFFER[:size])
        if not data:
            raise ConnectionError("the server closed the connection")
        if self.buffer:
            data = self.buffer + data
        whole = []
        while len(data) >= 4:
            size = 4 + int.from_bytes(data[:4], "big")
            if len(data) < size:
                break
            if len(data) == size:
                whole.append(data)
                data = b""
                break
            whole.append(data[:size])
            data = data[size:]
        self.buffer = data
        return whole


class Meter:
    """Counts between the end of the warm-up and the end."""

    def __init__(self, plan: BenchmarkPlan) -> None:
        self._plan = plan
        self.report = Report()
        self.latencies = array("d")
        self.opened = time.perf_counter()
        self.begins = self.opened + plan.warmup_seconds
        self.ends = self.begins + plan.seconds
        self.total_jobs = 0
        self._cpu = time.process_time()

    def begin_again(self, now: float) -> None:
        """The warm-up is over: what was counted so far does not count."""
        self.begins = now
        self.report = Report()
        self.latencies = array("d")
        self._cpu = time.process_time()

    def refuse(self, refusal: frames.RefusedFrame) -> None:
        self.report.refused += 1
        self.report.first_refusal = self.report.first_refusal or str(refusal)

    def finish(self, connections: list[LoadConnection]) -> Report:
        report = self.report
        report.seconds = time.perf_counter() - self.begins
        report.rate = report.jobs / report.seconds if report.seconds else 0.0
        report.load_cpu_share = (time.process_time() - self._cpu) / report.seconds if report.seconds else 0.0
        report.empty = sum(getattr(each.conversation, "empty", 0) for each in connections)
        report.latency_ms = percentiles_ms(self.latencies)
        return report


def percentiles_ms(seconds: array[float]) -> dict[str, float]:
    """Percentiles in milliseconds; empty for none."""
    values = sorted(seconds)
    if not values:
        return {}
    last = len(values) - 1
    marks = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: round(values[min(last, int(len(values) * mark))] * 1000, 4) for name, mark in marks.items()}


def run_closed(plan: BenchmarkPlan) -> Report:
    """Every connection sends its next request as soon as the last one is answered."""
    connections = [LoadConnection(plan, plan.first_connection + number) for number in range(plan.connections)]
    by_descriptor = {opened.fileno(): each for each in connections for opened in each.sockets.values()}
    poll = select.epoll()
    meter = Meter(plan)
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    for each in connections:
        each.started = time.perf_counter()
        each.send(each.conversation.first())
    _closed_loop(plan, meter, poll, by_descriptor)
    report = meter.finish(connections)
    poll.close()
    for each in connections:
        for opened in each.sockets.values():
            opened.close()
    return report


def _closed_loop(
    plan: BenchmarkPlan, meter: Meter, poll: select.epoll, by_descriptor: dict[int, LoadConnection]
) -> None:
    clock = time.perf_counter
    warm = plan.warmup_seconds <= 0
    jobs_max = plan.jobs_max or sys.maxsize
    dry_in_a_row, dry_enough = 0, 4 * plan.connections
    while True:
        for descriptor, _ in poll.poll(1.0):
            connection = by_descriptor[descriptor]
            for reply in connection.replies():
                try:
                    done, request = connection.conversation.answer(reply)
                except frames.RefusedFrame as refusal:
                    meter.refuse(refusal)
                    done, request = 0, connection.conversation.first()
                connection.send(request)
                now = clock()
                meter.latencies.append(now - connection.started)
                connection.started = now
                meter.report.requests += 1
                meter.report.jobs += done
                meter.total_jobs += done
                dry_in_a_row = 0 if done else dry_in_a_row + 1
        now = clock()
        if not warm and now >= meter.begins:
            warm = True
            meter.begin_again(now)
        if now >= meter.ends or meter.total_jobs >= jobs_max or dry_in_a_row > dry_enough:
            return


def run_open(plan: BenchmarkPlan) -> Report:
    """Requests leave by the clock, whatever is still unanswered: a latency counts from when its request was due.

    So a stall of the server is felt by every request that should have been sent meanwhile (no coordinated omission).
    """
    connections = [LoadConnection(plan, number) for number in range(plan.connections)]
    meter = Meter(plan)
    _open_loop(plan, meter, connections)
    report = meter.finish(connections)
    for each in connections:
        each.socket.close()
    return report


def _open_loop(plan: BenchmarkPlan, meter: Meter, connections: list[LoadConnection]) -> None:
    assert plan.rate is not None
    clock = time.perf_counter
    step = plan.jobs_per_request / plan.rate
    by_socket = {each.socket: each for each in connections}
    sockets = list(by_socket)
    warm, sent, due = plan.warmup_seconds <= 0, 0, clock()
    give_up = meter.ends + 30
    while True:
        now = clock()
        if not warm and now >= meter.begins:
            warm = True
            meter.begin_again(now)
        while due <= now and due < meter.ends:
            connection = connections[sent % len(connections)]
            connection.due.append(due)
            connection.socket.sendall(connection.conversation.first())
            sent += 1
            due += step
        if now >= meter.ends and (now > give_up or not any(each.due for each in connections)):
            return
        # select, not epoll: its time-out is in microseconds where epoll's is in milliseconds.
        for ready in select.select(sockets, [], [], max(0.0, min(due - clock(), 0.05)))[0]:
            _take_open(meter, by_socket[ready])


def _take_open(meter: Meter, connection: LoadConnection) -> None:
    for reply in connection.replies():
        due = connection.due.pop(0)
        try:
            done, _ = connection.conversation.answer(reply)
        except frames.RefusedFrame as refusal:
            meter.refuse(refusal)
            continue
        if due >= meter.begins:
            meter.latencies.append(time.perf_counter() - due)
            meter.report.requests += 1
            meter.report.jobs += done


def run(plan: BenchmarkPlan) -> Report:
    """Carries the plan out in this process."""
    return run_open(plan) if plan.rate is not None else run_closed(plan)


def main() -> None:
    """One plan as JSON on stdin, its report as JSON on stdout."""
    plan = BenchmarkPlan(**json.load(sys.stdin))
    json.dump(asdict(run(plan)), sys.stdout)


if __name__ == "__main__":
    main()

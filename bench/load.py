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
from random import Random
from typing import Protocol

from bench import frames
from pinlater.client._owners import Affinity
from pinlater.domain.descriptor import shard_of
from pinlater.domain.rendezvous import rendezvous_home

BODY_BYTES = 100
# The failures of all connections are one group.
FAILURE = "TimeoutError: 10.0.0.{}:3306 gave no answer in 3.5 s"
# One buffer for all: making a large one for each read costs four times the read.
_BUFFER = memoryview(bytearray(256 * 1024))


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What to do. `kind`: enqueue, enqueue with key, enqueue ordered, claim (a dequeue and then an ack, two requests) or fail (whose ack
    says that the jobs failed). `rate` makes it an open loop.

    `ports`: of several servers, over which connections are spread instead of `port`. `owner_ports`: by shard, for a load that is one client
    of ours with many threads, which knows who owns the queue. `first_connection`: its number, if several loads run at once. `queues`: over
    how many the connections are spread, each of which has a queue for itself.
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
    queues: int = 1

    def queue_of(self, number: int) -> str:
        """The queue of connection `number`."""
        return queue_names(self.queue, self.queues)[(self.first_connection + number) % self.queues]

    def port_of(self, number: int) -> int:
        """Where connection `number` goes."""
        return self.ports[number % len(self.ports)] if self.ports else self.port


def queue_names(first: str, count: int) -> list[str]:
    """That many names, of which the first is as given."""
    return [first, *(f"{first}{number}" for number in range(1, count))]


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
        self._frame = frames.enqueue(plan.queue_of(number), [body] * plan.jobs_per_request)
        self._jobs = plan.jobs_per_request
        self.port = plan.port_of(number)

    def first(self) -> bytes:
        return self._frame

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        frames.result_at(reply)
        return self._jobs, self._frame


class OwnerPorts:
    """Where the calls of one thread go that knows the owners of the queue (`client._owners`)."""

    def __init__(self, plan: BenchmarkPlan) -> None:
        self._ports = plan.owner_ports
        self._shards = list(plan.owner_ports)
        self._servers = list(dict.fromkeys(plan.owner_ports.values()))
        random = Random()
        self._enqueues, self._others = Affinity(random), Affinity(random)

    def keyed(self, new: frames.KeyedEnqueue, jobs: int) -> tuple[bytes, int]:
        """An enqueue of this number of jobs, and the port of the owner to which its key leads."""
        shard = self._enqueues.choose(self._shards, jobs, time.monotonic())
        while True:
            frame = new.frame()
            if rendezvous_home(frames.key_of(frame), self._shards) == shard:
                return frame, self._ports[shard]

    def for_dequeue(self, limit: int) -> int:
        """The port of the owner to which it goes."""
        return self._others.choose(self._servers, limit, time.monotonic())

    def of_job(self, descriptor: bytes) -> int:
        """The port of the owner of the shard that the job is on."""
        return self._ports[shard_of(descriptor.decode())]


class KeyedEnqueuing:
    """An enqueue with a request key of its own each time."""

    def __init__(self, plan: BenchmarkPlan, number: int, owners: OwnerPorts | None) -> None:
        body = f"{number:08d}".encode().ljust(BODY_BYTES, b"x")
        self._frames = frames.KeyedEnqueue(plan.queue_of(number), [body] * plan.jobs_per_request, f"{number}-")
        self._jobs = plan.jobs_per_request
        self.port = plan.port_of(number)
        self._owners = owners

    def first(self) -> bytes:
        if self._owners is None:
            return self._frames.frame()
        frame, self.port = self._owners.keyed(self._frames, self._jobs)
        return frame

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        frames.result_at(reply)
        return self._jobs, self.first()


class OrderedEnqueuing:
    """An enqueue of jobs with other ordering keys each time."""

    def __init__(self, plan: BenchmarkPlan, number: int) -> None:
        body = f"{number:08d}".encode().ljust(BODY_BYTES, b"x")
        self._frames = frames.OrderedEnqueue(plan.queue_of(number), [body] * plan.jobs_per_request)
        self._jobs = plan.jobs_per_request
        self.port = plan.port_of(number)

    def first(self) -> bytes:
        return self._frames.frame()

    def answer(self, reply: bytes) -> tuple[int, bytes]:
        frames.result_at(reply)
        return self._jobs, self.first()


class Claiming:
    """A dequeue, then an ack of what it gave, and so on. Counts a job when its ack is answered."""

    def __init__(self, plan: BenchmarkPlan, number: int, owners: OwnerPorts | None) -> None:
        self._owners = owners
        self.port = plan.port_of(number)
        self._limit = plan.jobs_per_request
        self._frame = frames.dequeue(plan.queue_of(number), plan.jobs_per_request)
        self._acks = frames.AckMaker(plan.queue_of(number), FAILURE.format(number) if plan.kind == "fail" else "")
        self._in_hand = 0
        self.empty = 0

    def first(self) -> bytes:
        if self._owners is not None:
            self.port = self._owners.for_dequeue(self._limit)
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
        if self._owners is not None:
            self.port = self._owners.of_job(descriptors[0])
        return 0, self._acks.frame(descriptors)


def converse(plan: BenchmarkPlan, number: int) -> Conversation:
    """The conversation of connection `number`."""
    owners = OwnerPorts(plan) if plan.owner_ports else None
    if plan.kind in {"claim", "fail"}:
        return Claiming(plan, number, owners)
    if plan.kind == "enqueue ordered":
        return OrderedEnqueuing(plan, number)
    return KeyedEnqueuing(plan, number, owners) if plan.kind == "enqueue with key" else Enqueuing(plan, number)


class Sockets:
    """The sockets of one load, each in use by one connection or idle. The newest idle one is used first, as our clients do."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._idle: dict[int, list[socket.socket]] = {}
        self._all: list[socket.socket] = []
        self.poll = select.epoll()
        self.users: dict[int, LoadConnection] = {}

    def take(self, port: int, user: LoadConnection) -> socket.socket:
        """An idle one to that port, or a new one."""
        idle = self._idle.setdefault(port, [])
        taken = idle.pop() if idle else self._connect(port)
        self.users[taken.fileno()] = user
        return taken

    def _connect(self, port: int) -> socket.socket:
        opened = socket.create_connection((self._host, port), timeout=30)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.settimeout(None)  # a socket with a time-out polls before each call
        self._all.append(opened)
        self.poll.register(opened, select.EPOLLIN)
        return opened

    def give_back(self, port: int, used: socket.socket) -> None:
        self._idle[port].append(used)

    def close(self) -> None:
        self.poll.close()
        for opened in self._all:
            opened.close()


class LoadConnection:
    """A socket with the rest of a reply that has not come whole. If it knows several servers, a socket to where its call goes."""

    __slots__ = ("_port", "_sockets", "buffer", "conversation", "due", "socket", "started")

    def __init__(self, plan: BenchmarkPlan, number: int, sockets: Sockets) -> None:
        self._sockets = sockets
        self._port = plan.port_of(number)
        self.socket = sockets.take(self._port, self)
        self.conversation = converse(plan, number)
        self.buffer = b""
        self.started = 0.0
        self.due: list[float] = []

    def send(self, request: bytes) -> None:
        """Sends to where the conversation goes on."""
        if self.conversation.port != self._port:
            self._sockets.give_back(self._port, self.socket)
            self._port = self.conversation.port
            self.socket = self._sockets.take(self._port, self)
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
    sockets = Sockets(plan.host)
    connections = [LoadConnection(plan, plan.first_connection + number, sockets) for number in range(plan.connections)]
    meter = Meter(plan)
    for each in connections:
        each.started = time.perf_counter()
        each.send(each.conversation.first())
    _closed_loop(plan, meter, sockets)
    report = meter.finish(connections)
    sockets.close()
    return report


def _closed_loop(plan: BenchmarkPlan, meter: Meter, sockets: Sockets) -> None:
    clock = time.perf_counter
    warm = plan.warmup_seconds <= 0
    jobs_max = plan.jobs_max or sys.maxsize
    dry_in_a_row, dry_enough = 0, 4 * plan.connections
    while True:
        for descriptor, _ in sockets.poll.poll(1.0):
            connection = sockets.users[descriptor]
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
    sockets = Sockets(plan.host)
    connections = [LoadConnection(plan, number, sockets) for number in range(plan.connections)]
    meter = Meter(plan)
    _open_loop(plan, meter, connections)
    report = meter.finish(connections)
    sockets.close()
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

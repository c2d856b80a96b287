"""Callers that send more than they should and read less, and what is measured of the server meanwhile."""

from __future__ import annotations

import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self

from bench.servers import PinLaterServer
from pinlater.server.telemetry.loop_lag import BOUNDS_MS
from pinlater.wire.codec import Decoder, Reply, encode_call
from pinlater.wire.generated import structs as types

P = ParamSpec("P")
DEADLINE_S = 60.0
STALL_S = 2.0
CONTEXT = types.RequestContext("hostile", "request")
_SAMPLE = re.compile(r"^(\w+)(?:\{(\w+)=\"([^\"]*)\"\})? (\S+)$", re.MULTILINE)


class HostileCaller:
    """One connection; sends and reads only what it is told to."""

    def __init__(self, server: PinLaterServer, host: str = "127.0.0.1") -> None:
        """`host`: the address of this machine to connect from."""
        self.socket = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S, source_address=(host, 0))
        self._decoder = Decoder()
        self._unsent = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, method: str, seqid: int = 1, **arguments: Any) -> None:
        """Sends a call and waits until the kernel has it."""
        self.socket.sendall(call(method, seqid, **arguments))

    def receive(self) -> Reply:
        """The next reply. Raises EOFError where the server has closed."""
        return self._decoder.reply(self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next reply as it came, without its length. Raises EOFError where the server has closed."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def call(self, method: str, **arguments: Any) -> Reply:
        self.send(method, **arguments)
        return self.receive()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(min(size - len(parts), 1_000_000))
            if not part:
                raise EOFError("the server closed the connection")
            parts += part
        return bytes(parts)

    def reset(self) -> None:
        """Closes hard: the server gets a reset, whatever is unread."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # --- without waiting ----------------------------------------------------------------------------------------------------
    def queue(self, *frames: bytes) -> None:
        """To be sent by `flood`."""
        self._unsent += b"".join(frames)

    @property
    def wants_to_send(self) -> bool:
        return bool(self._unsent)

    def push(self) -> int:
        """Sends what the kernel takes now; how many bytes that was."""
        try:
            sent = self.socket.send(memoryview(self._unsent)[:1_000_000], socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:  # cut by the server
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        return sent


def call(method: str, seqid: int = 1, **arguments: Any) -> bytes:
    """A framed call."""
    return encode_call(method, seqid, context=CONTEXT, **arguments)


def flood(callers: Sequence[HostileCaller], watch: Callable[[], object]) -> None:
    """Sends what all of them have queued until it is gone, or the server takes nothing for a while. `watch` is called often."""
    deadline = time.monotonic() + DEADLINE_S
    moved = time.monotonic()
    while time.monotonic() < min(deadline, moved + STALL_S):
        sending = [each for each in callers if each.wants_to_send]
        if not sending:
            return
        _, ready, _ = select.select([], sending, [], 0.05)
        if sum([each.push() for each in ready]):
            moved = time.monotonic()
        watch()


def until(condition: Callable[[], object]) -> None:
    """Polls until it holds. Raises TimeoutError."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it never became so")
        time.sleep(0.01)


# --- what is measured of the server ---------------------------------------------------------------------------------------------


class Memory:
    """The most resident memory of a server beyond what it had when this was made, at the moment of the last `look`."""

    def __init__(self, server: PinLaterServer) -> None:
        self._server = server
        self._before_mb = server.memory_mb()
        self.peak_mb = 0.0
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the kernel's mark of the most starts anew

    def look(self) -> None:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{self._server.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        self.peak_mb = int(found[1]) * 1024 / 1e6 - self._before_mb

    def after(self, method: str, calls: int) -> bool:
        """Samples the memory; says whether the server has executed this number of calls, with answers read or unread."""
        done = answered(self._server, method) >= calls and samples(self._server, "pinlater_requests_running")[""] == 0
        self.look()
        return done


def answered(server: PinLaterServer, method: str) -> float:
    """How many calls of a method the server has begun since its start."""
    return samples(server, "pinlater_requests_total").get(method, 0)


def samples(server: PinLaterServer, name: str) -> dict[str, float]:
    """A metric's values by its one label; '' where it has none."""
    found = _SAMPLE.findall(server.get("/metrics"))
    return {label: float(value) for metric, _, label, value in found if metric == name}


def in_flight(server: PinLaterServer) -> float:
    """Bytes that the server's budget counts now."""
    return sum(samples(server, "pinlater_memory_in_flight_bytes").values())


LONG_TURN_MS = 50
# CPU time of `_work` on the machine that the bound is for.
_WORK_S = 0.015


def allowed_turn_ms(slowness: float) -> int:
    """Twice 50 ms, since other tests that run at the same time take away caches and memory, and more on a slower machine."""
    return next(bound for bound in BOUNDS_MS if bound >= 2 * LONG_TURN_MS * slowness or bound is BOUNDS_MS[-1])


def _slowness() -> float:
    """The longest of a few tries, since hosts that are shared are slow for parts of a second."""
    return max(1.0, max(_work() for _ in range(5)) / _WORK_S)


def _work() -> float:
    """The CPU time of some work that is always the same."""
    began_s, total = time.thread_time(), 0
    for number in range(300_000):
        total += number
    return time.thread_time() - began_s


class LongTurn(AssertionError):
    """A turn of a server's event loop took too long."""


def up_to_thrice(test: Callable[P, None]) -> Callable[P, None]:
    """Does a test again after a `LongTurn`, since a host that gives its processors to others counts that as CPU time, too.

    What the server takes long for, it takes long for each time.
    """

    @wraps(test)
    def judged(*args: P.args, **options: P.kwargs) -> None:
        for _ in range(2):
            with suppress(LongTurn):
                return test(*args, **options)
        return test(*args, **options)

    return judged


@contextmanager
def no_long_turn(server: PinLaterServer, name: str = "") -> Iterator[None]:
    """Raises LongTurn if a turn of the server's event loop took more CPU time inside the block than `allowed_turn_ms`.

    CPU time of the loop's thread and not time on the wall: the machine may be busy with other tests. Start the server with
    `--set telemetry.loop_lag_interval_ms=5`, since what a turn took before the timer was due is not seen.
    """
    slowness = _slowness()
    before = samples(server, "pinlater_loop_turn_cpu_over")
    yield
    after = samples(server, "pinlater_loop_turn_cpu_over")
    longest_s = samples(server, "pinlater_loop_turn_cpu_seconds_max")[""]
    allowed = allowed_turn_ms(max(slowness, _slowness()))
    more = after[str(allowed)] - before[str(allowed)]
    if more:
        raise LongTurn(
            f"{name} {more:.0f} turns of the event loop took more than {allowed} ms, up to {longest_s * 1000:.0f} ms"
        )

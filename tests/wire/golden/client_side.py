"""The public client against a server that only replays: what it sends, and what it makes of recorded answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError
from tests.wire.golden.client_calls import CALLS
from tests.wire.golden.exchange import SENT, Scenario, ScenarioStep, read_scenario, scenario_names

VALUES = Path(__file__).parent / "values.txt"
_LENGTH_BYTES = 4
_LINE_CHARS_MAX = 180


class ReplayingServer:
    """Gives each request the answer that a test has put here last, with the request's sequence id, and keeps the request."""

    def __init__(self) -> None:
        self.answer = b""
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until its client ends it."""
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
                request = await reader.readexactly(size)
                self.requests.append(request)
                answer = self.answer or _answer_without_value(request)
                seqid_at = _seqid_at(answer)
                seqid = request[_seqid_at(request) :][:4]
                answer = answer[:seqid_at] + seqid + answer[seqid_at + 4 :]
                writer.write(len(answer).to_bytes(_LENGTH_BYTES, "big") + answer)
        except asyncio.IncompleteReadError:
            writer.close()


def _seqid_at(message: bytes) -> int:
    return 8 + int.from_bytes(message[4:8], "big")


def _read_name(message: bytes) -> str:
    return message[8 : _seqid_at(message)].decode()


def _answer_without_value(request: bytes) -> bytes:
    """The answer of a method that returns nothing: others take it for a fault of the server."""
    return b"\x80\x01\x00\x02" + request[4 : _seqid_at(request) + 4] + b"\0"


@asynccontextmanager
async def client_of_replays(**options: Any) -> AsyncIterator[tuple[AsyncClient, ReplayingServer]]:
    """A client that makes each call once, and its server."""
    replaying = ReplayingServer()
    server = await asyncio.start_server(replaying.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    once = {"retries": 0, "wait_for_servers": False, "follow_owners": False, "source": "golden", **options}
    async with AsyncClient(address, **once) as client:
        yield client, replaying
    server.close()
    await server.wait_closed()


async def sent_requests() -> Scenario:
    """What a client sends for each of `CALLS`, on a new connection each time."""
    steps = []
    for options, calls in (({}, CALLS), ({"token": "pinlater_token"}, CALLS[:1])):
        for call in calls:
            async with client_of_replays(**options) as (client, server):
                with suppress(PinLaterError):  # the client misses a value in the answer
                    await call.ask(client)
                [request] = server.requests
                note = f"{call.note} with a token".strip() if options else call.note
                steps.append(ScenarioStep("call", call.method, "", note, request))
    return Scenario(SENT, "that only replays", steps)


async def made_values() -> list[str]:
    """What the client makes of the answers of all scenarios, as lines. Each value is shown once, with the first call that answered it."""
    asks = {call.method: call.ask for call in reversed(CALLS)}
    text: list[str] = []
    seen: set[tuple[str, bytes | str]] = set()
    async with client_of_replays() as (client, server):
        for name, asked, answer in _answers():
            method, body = _read_name(answer), answer[_seqid_at(answer) + 4 :]
            if method not in asks or (method, body) in seen:
                continue
            seen.add((method, body))
            server.answer = answer
            try:
                value = await asks[method](client)
            except PinLaterError as error:
                value = error
            shown = "\n".join(_lines(value, "  "))
            if value is not None and (method, shown) not in seen:
                seen.add((method, shown))
                text += [f"{method} in {name}: {asked.note or 'no note'}", *shown.split("\n")]
    return text


def _answers() -> Iterator[tuple[str, ScenarioStep, bytes]]:
    """The recorded answers, with the names of their scenarios, and their requests."""
    for name in scenario_names():
        asked = ScenarioStep("")
        for step in read_scenario(name).steps:
            if step.kind in ("call", "send"):
                asked = step
            elif step.kind == "answer":
                yield name, asked, step.data


# --- values as lines -----------------------------------------------------------------------------------------------------------
def _lines(value: Any, indent: str, name: str = "") -> Iterator[str]:
    """The value as lines: on one if it fits, else with each of its parts on lines of its own."""
    line = f"{indent}{name}{_shown(value)}"
    parts = list(_parts(value))
    if len(line) <= _LINE_CHARS_MAX or not parts or isinstance(value, PinLaterError):
        yield line
        return
    yield f"{indent}{name}{_kind(value)}"
    for part_name, part in parts:
        yield from _lines(part, indent + "  ", part_name)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    return "[]" if _is_list(value) else type(value).__name__


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes) and not _fields(value)


def _fields(value: Any) -> Sequence[str]:
    """The names of the public fields, whichever kind of class the client's values are made of."""
    if isinstance(value, PinLaterError):
        return ("code", "detail", "retryable", "retry_after_ms", "message")
    names = (getattr(value, kind, ()) for kind in ("_fields", "__struct_fields__", "__dataclass_fields__"))
    return next((tuple(found) for found in names if found), ())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, whether it is a list, a map or an object with fields; none of a simple value."""
    if isinstance(value, Mapping):
        yield from ((f"{key!r}: ", each) for key, each in value.items())
    elif _is_list(value):
        for each, equal in groupby(sorted(value, key=repr) if isinstance(value, Set) else value):
            times = len(list(equal))
            yield ("" if times == 1 else f"{times} times "), each
    else:
        yield from ((f"{field}=", getattr(value, field)) for field in _fields(value))


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    inside = ", ".join(f"{name}{_shown(part)}" for name, part in _parts(value))
    if isinstance(value, Mapping):
        return f"{{{inside}}}"
    if _is_list(value):
        return f"[{inside}]"
    return f"{type(value).__name__}({inside})" if _fields(value) else repr(value)

"""Whatever comes over the wire gets a clear error, never an internal one, and the server goes on serving."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from thrift.Thrift import TType

from scripts import idl
from tests.promises.wire import PinLater, RefusedOnWire, Undecodable, Wire, context, encode_arguments, framed, ttypes

I32 = (-(2**31), -1, 0, 1, 2**31 - 1)
I64 = (-(2**63), -(2**53), -1, 0, 1, 2**53, 2**63 - 1)
BYTES = (-128, -1, 0, 1, 4, 127)
DOUBLES = (float("nan"), float("inf"), float("-inf"), -0.0, -1.0, 5e-324, 1.8e308)
MEGABYTE = "x" * 2**20
TEXTS = (
    "",
    "\0",
    "a\0b",
    "\ud7ff\ue000\U0010ffff",
    "'; DROP TABLE jobs; --",
    "%s%n{}",
    "a:b:c",
    "../../x",
    "é" * 100,
    MEGABYTE,
)
NUMBERS = {TType.BYTE: BYTES, TType.I32: I32, TType.I64: I64, TType.DOUBLE: DOUBLES}
# These need a job in hand; what came before may have ended it.
IN_HAND = {
    "ackDequeuedJobs",
    "ackJobs",
    "checkpointJobs",
    "checkpointJobsFenced",
    "heartbeatClaims",
    "releaseJobs",
    "cancelJobs",
}
REQUIRED = {
    struct["name"]: tuple(field["name"] for field in struct["fields"] if field["required"] == "required")
    for struct in idl.describe()["structs"]
}
CODES = set(ttypes.ErrorCode._VALUES_TO_NAMES)
METHODS = sorted(name.removesuffix("_args") for name in vars(PinLater) if name.endswith("_args"))


async def the_job(wire: Wire, queue: str) -> tuple[str, str]:
    """A fresh job in hand: descriptor and token. Invented ones where the queue gives none any more."""
    with suppress(RefusedOnWire, IndexError):
        await wire.enqueue(queue, b"body")
        return (await wire.claim(queue, 1))[0]
    return f"{queue}:s1:p1:1", "0-0-0"


def harmless(entry: tuple[Any, ...], queue: str, descriptor: str, token: str) -> Any:
    """A value for a field that does no harm; structs filled in whole, so that each field is there to be made hostile."""
    _, kind, name, argument, _ = entry
    if kind == TType.STRUCT:
        return filled(argument[0], queue, descriptor, token)
    if kind == TType.LIST:
        return [harmless((0, argument[0], name, argument[1], None), queue, descriptor, token)]
    if kind == TType.MAP:
        return {"name": "value"}
    if kind == TType.STRING:
        texts = {"jobDescriptor": descriptor, "jobDescriptors": descriptor, "claimToken": token, "continuation": "0"}
        texts |= {"queueName": queue, "name": queue, "queueNames": queue}
        text = texts.get(name, "text")
        return text.encode() if argument == "BINARY" else text
    return {TType.BOOL: False, TType.DOUBLE: 1.0}.get(kind, 1)


def filled(cls: type[Any], queue: str, descriptor: str, token: str) -> Any:
    fields = [entry for entry in cls.thrift_spec if entry is not None]
    return cls(**{entry[2]: harmless(entry, queue, descriptor, token) for entry in fields})


def places(value: Any) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """(holder, key, spec entry) of every number and text in an arguments struct, lists' first elements included."""
    for entry in type(value).thrift_spec:
        if entry is None:
            continue
        held = getattr(value, entry[2])
        if held is None and entry[1] in (TType.STRUCT, TType.LIST, TType.MAP):
            continue
        if entry[1] == TType.STRUCT:
            yield from places(held)
        elif entry[1] == TType.LIST and entry[3][0] == TType.STRUCT:
            yield from places(held[0])
        elif entry[1] == TType.LIST:
            yield held, 0, (0, entry[3][0], entry[2], entry[3][1], None)
        elif entry[1] == TType.MAP:
            yield held, "name", (0, TType.STRING, entry[2], "UTF8", None)
        else:
            yield value, entry[2], entry


def put(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, list | dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


def hostile_values(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    if entry[1] == TType.STRING:
        return tuple(text.encode() for text in TEXTS) if entry[3] == "BINARY" else TEXTS
    if entry[2] == "waitMillis":  # the long ones have tests of their own
        return (-(2**31), -1, 0, 1)
    return NUMBERS.get(entry[1], ())


def sparse(cls: type[Any], entry_name: str, queue: str, descriptor: str, token: str) -> Any:
    """As `filled`, but of optional fields only the one to be made hostile is there."""
    fields = [entry for entry in cls.thrift_spec if entry is not None]
    required = REQUIRED.get(cls.__name__, tuple(entry[2] for entry in fields) if cls.__name__.endswith("_args") else ())
    made = cls()
    for entry in fields:
        if entry[1] == TType.STRUCT:
            setattr(made, entry[2], sparse(entry[3][0], entry_name, queue, descriptor, token))
        elif entry[1] == TType.LIST and entry[3][0] == TType.STRUCT:
            setattr(made, entry[2], [sparse(entry[3][1][0], entry_name, queue, descriptor, token)])
        elif entry[2] in required or entry[2] in (entry_name, "paged"):
            setattr(made, entry[2], harmless(entry, queue, descriptor, token))
    return made


async def answer_is_clear(wire: Wire, method: str, arguments: Any) -> None:
    """The call succeeds, or is refused with a detail that is not INTERNAL, and says something."""
    names = [entry[2] for entry in type(arguments).thrift_spec if entry is not None]
    sent = {name: getattr(arguments, name) for name in names if name != "requestContext"}
    try:
        await wire.call(method, source=arguments.requestContext.source, **sent)
    except RefusedOnWire as error:
        refusal = error
    else:
        return
    assert refusal.code in CODES, (method, refusal.code)
    assert refusal.detail not in (None, "", "INTERNAL"), (method, str(refusal)[:300])
    assert 0 < len(refusal.message) < 1_000, (method, len(refusal.message))
    assert refusal.retryable is not None


@pytest.mark.parametrize("method", METHODS)
async def test_hostile_values_in_any_field_get_a_clear_answer(wire: Wire, queue: str, method: str) -> None:
    """Every number at its extremes and every kind of hostile text, in each field, all the others filled in and none of them."""
    cls = getattr(PinLater, f"{method}_args")
    names = {entry[2] for _, _, entry in places(filled(cls, queue, "", ""))}
    complaints: list[str] = []
    for name in sorted(names):
        complaints += await try_one(wire, queue, method, name, whole=True)
        complaints += await try_one(wire, queue, method, name, whole=False)
    assert not complaints, "\n".join(complaints)
    await everything_can_be_read(wire, queue)


async def try_one(wire: Wire, queue: str, method: str, name: str, *, whole: bool) -> list[str]:
    """Each hostile value in the field of this name; the other optional fields all set, or none."""
    cls = getattr(PinLater, f"{method}_args")
    complaints: list[str] = []
    descriptor, token = await the_job(wire, queue)
    kind = next(entry for _, _, entry in places(filled(cls, queue, descriptor, token)) if entry[2] == name)
    for value in hostile_values(kind)[: -1 if whole and kind[1] == TType.STRING else None]:  # a megabyte once is enough
        if method in IN_HAND:
            descriptor, token = await the_job(wire, queue)
        make = filled if whole else partial(sparse, entry_name=name)
        arguments = make(cls, queue=queue, descriptor=descriptor, token=token)
        for holder, key, entry in places(arguments):
            if entry[2] == name:
                put(holder, key, value)
        try:
            await answer_is_clear(wire, method, arguments)
        except AssertionError as complaint:
            complaints.append(f"{name}={str(value)[:40]!r}: {complaint}")
    return complaints


async def everything_can_be_read(wire: Wire, queue: str) -> None:
    """Whatever was stored on the way comes out again, and goes."""
    if queue not in await wire.call("getQueueNames"):
        return
    await wire.call("getQueueStats", queueNames=[queue])
    for state in range(4):
        for future in (False, True):
            await wire.scan(queue, state, scanFutureJobs=future, limit=10_000)
            await wire.count(queue, state, countFutureJobs=future)
    with suppress(RefusedOnWire):
        await wire.dequeue(queue, 1_000)
    with suppress(RefusedOnWire):
        await wire.dequeue(queue, 1_000, dryRun=True)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(.*)(.*)(.*)(.*)(.*)$",
        "((a{0,100}){0,100}){0,100}",
        "(" * 400 + ")" * 400,
        "[",
        "a{1,100000}",
        "(?P<x>a)(?P<x>b)",
        "\\1",
        "(?=a)",
        "\\p{Nope}",
        "a" * 1_001,
        "\0",
        "[[:alpha:]",
        "*",
    ],
)
async def test_a_costly_or_broken_regex_gets_a_clear_error_or_an_answer_in_time(
    wire: Wire, queue: str, pattern: str
) -> None:
    await wire.enqueue(queue, b"a" * 50_000 + b"b", bytes(range(256)), b"")
    request = ttypes.PinLaterDeleteJobsRequest(queueName=queue, jobState=0, bodyRegexToMatch=pattern, limit=0)
    for call in (
        wire.count(queue, bodyRegexToMatch=pattern),
        wire.scan(queue, bodyRegexToMatch=pattern),
        wire.call("deleteJobs", request=request),
    ):
        try:
            await call
        except RefusedOnWire as refusal:
            detail = refusal.detail
        else:
            detail = "REGEX_INVALID"
        assert detail in ("REGEX_INVALID", "REGEX_TOO_COSTLY")
    assert await wire.count(queue) == 3


@pytest.mark.parametrize(
    "continuation", ["9999999999999999999.1", "1.9999999999999999999", "-9999999999999999999.0", "1.", "x"]
)
async def test_a_forged_continuation_is_refused(wire: Wire, queue: str, continuation: str) -> None:
    await wire.enqueue(queue, b"body")
    with pytest.raises(RefusedOnWire) as refusal:
        await wire.scan(queue, paged=True, continuation=continuation)
    assert refusal.value.code == 400


async def test_bodies_of_every_byte_come_back_byte_for_byte(wire: Wire, queue: str) -> None:
    bodies = [
        b"",
        bytes(range(256)),
        b"\0" * 100,
        "\ud7ff".encode(),
        b"\xff" * 65_537,
        b"\xed\xa0\x80",
        bytes([0x80]) * 2**20,
    ]
    for body in bodies:
        [descriptor] = await wire.enqueue(queue, body)
        assert (await wire.job(descriptor)).body == body
        assert await wire.bodies(queue, 1) == [body]


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\xf5"])
async def test_text_that_is_not_utf8_makes_the_request_undecodable(wire: Wire, queue: str, raw: bytes) -> None:
    for name in ("createQueue", "getQueueConfig"):
        arguments = getattr(PinLater, f"{name}_args")(requestContext=context())
        setattr(arguments, "name" if name == "createQueue" else "queueName", "MARK" * len(raw))
        message = encode_arguments(name, arguments).replace(b"MARK" * len(raw), raw * 4)
        wire.write(framed(message))
        with pytest.raises(Undecodable) as refusal:
            await wire.result(name)
        assert refusal.value.kind == 7
    assert await wire.count(queue) == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [("", 410), ("ä", 410), ("a b", 410), ("a\n", 410), ("a\0", 410), ("q" * 65, 411), ("q" * 2**20, 411)],
)
async def test_a_hostile_queue_name_is_refused(wire: Wire, name: str, code: int) -> None:
    with pytest.raises(RefusedOnWire) as refusal:
        await wire.create(name)
    assert refusal.value.code == code

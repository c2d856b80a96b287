"""Recorded requests get the recorded answers, byte for byte, from a whole server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pytest

from tests.wire.golden.exchange import ScenarioStep, read_scenario, scenario_names
from tests.wire.golden.idl import METHODS, STRUCTS
from tests.wire.golden.message import Part, all_parts, items, read_message, with_items
from tests.wire.golden.replay import Player, player, replay

# More than a server encodes in one turn of its event loop.
MANY = 2_600


@pytest.mark.parametrize("name", scenario_names())
async def test_the_server_answers_recorded_requests_with_the_recorded_bytes(name: str) -> None:
    """Clients in any language were generated from this contract. CONTRIBUTING.md says how to record anew, and when."""
    differences = await replay(read_scenario(name))
    assert not differences, "\n\n".join(["", *differences])


def _recorded(*kinds: str) -> list[Part]:
    """The messages of these kinds of steps."""
    steps = (step for name in scenario_names() for step in read_scenario(name).steps)
    return [read_message(step.data) for step in steps if step.kind in kinds]


def _fields_of(types: Iterable[str]) -> dict[tuple[str, str], str]:
    """The type of each field of these types and of all structs in them."""
    found: dict[tuple[str, str], str] = {}
    for struct in {name for kind in types for name in re.findall(r"\w+", kind) if name in STRUCTS}:
        fields = STRUCTS[struct].values()
        found |= {(struct, field.name): field.type for field in fields} | _fields_of(field.type for field in fields)
    return found


def _fields_in(messages: Iterable[Part]) -> Iterator[tuple[tuple[str, str], Part]]:
    parts = (part for message in messages for part in all_parts(message))
    return (((part.type, field.name), field) for part in parts for field in part.children)


def test_each_field_and_argument_of_a_request_is_in_a_recorded_frame() -> None:
    """A new method or field needs a scenario."""
    asked = _recorded("call", "send")
    arguments = {
        (name, field.name): field.type for name, method in METHODS.items() for field in method.arguments.values()
    }
    assert arguments.keys() - {(message.name, part.name) for message in asked for part in message.children} == set()
    # It is told, and not asked for.
    assert _fields_of(arguments.values()).keys() - dict(_fields_in(asked)).keys() == {("QueueConfig", "ordered")}


def test_each_field_of_an_answer_is_in_a_recorded_frame_and_each_number_is_there_other_than_zero() -> None:
    answered = _recorded("answer")
    results = [(name, method.result[0].type) for name, method in METHODS.items() if 0 in method.result]
    assert {name for name, _ in results} - {message.name for message in answered if message.children} == set()
    fields = _fields_of(["PinLaterException", *(kind for _, kind in results)])
    assert fields.keys() - dict(_fields_in(answered)).keys() == set()
    numbers = {field for field, kind in fields.items() if kind in ("bool", "i32", "i64", "double")}
    others = {name for name, field in _fields_in(answered) if field.text not in ("0", "0.0", "false")}
    assert numbers - others == {("JobsAhead", "atLeast")}  # it takes 10,000 jobs


def _request(scenario: str, method: str, note: str) -> Part:
    [step] = [each for each in read_scenario(scenario).steps if (each.name, each.note) == (method, note)]
    return read_message(step.data)


async def _answer(playing: Player, request: Part) -> bytes:
    await playing.play(ScenarioStep("call", data=request.data))
    return await playing.receive("")


async def _items(playing: Player, request: Part, data: Sequence[bytes] | None = None) -> list[bytes]:
    """The elements of the answer's list, to the request with these elements in its list."""
    answer = await _answer(playing, request if data is None else with_items(request, data))
    return [part.data for part in items(read_message(answer))]


async def test_a_long_answer_has_the_bytes_of_short_ones_joined() -> None:
    """The server encodes a long list in steps."""
    async with player("plain") as playing:
        await _answer(playing, _request("enqueues", "createQueue", ""))
        enqueue = _request("enqueues", "enqueueJobs", "no optional field")
        names = await _items(playing, enqueue, [items(enqueue)[0].data] * MANY)
        assert len(set(names)) == MANY
        lookup = _request("looks", "lookupJobs", "no optional field")
        short = [part for at in range(0, MANY, 400) for part in await _items(playing, lookup, names[at : at + 400])]
        assert b"".join(short) in await _answer(playing, with_items(lookup, names))
        jobs = [pair.removeprefix(name) for pair, name in zip(short, names, strict=True)]
        scan = _request("looks", "scanJobs", "more than there are")
        assert b"".join(reversed(jobs)) in await _answer(playing, scan)
        heartbeat = _request("leases", "heartbeatClaims", "there is no such claim")
        claims = [part.data for part in items(heartbeat)]
        outcomes = await _items(playing, heartbeat, claims)
        assert b"".join(outcomes * MANY) in await _answer(playing, with_items(heartbeat, claims * MANY))

"""Recorded requests get the recorded answers, byte for byte, from a whole server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def _recorded() -> Iterator[Part]:
    for name in scenario_names():
        for step in read_scenario(name).steps:
            if step.kind in ("call", "send", "answer"):
                yield read_message(step.data)


def test_each_method_and_each_field_of_the_contract_is_in_a_recorded_frame() -> None:
    """A new method or field needs a scenario."""
    messages = list(_recorded())
    parts = [part for message in messages for part in all_parts(message)]
    found = {(part.type, field.name) for part in parts for field in part.children}
    fields = {(struct, field.name) for struct, known in STRUCTS.items() for field in known.values()}
    assert fields - found == set()
    answered = {message.name for message in messages if message.text.startswith("reply") and message.children}
    asked = {message.name for message in messages if message.text.startswith("call")}
    assert METHODS.keys() - asked == set()
    assert {name for name, method in METHODS.items() if 0 in method.result} - answered == set()


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

"""What a server that proves the shards' secret can't do: make another one work for seconds, or keep what it does not read."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.server.cluster.forwarding import messages
from pinlater.server.cluster.forwarding.messages import WAKES_MAX, Wake
from pinlater.server.link import messages as link_messages
from pinlater.server.link.messages import LENGTH_BYTES, BadMessage, Part, frame, message_of_asking, parts_of
from tests.forwarding.two_servers import Asker, Owner, end_of, proven, request, until

ARE_YOU_RUNNING = message_of_asking(messages.RUNNING, 0)
LOOK_AT_OWNERS = message_of_asking(messages.LOOK)
WHICH_WORKERS = message_of_asking(messages.WORKERS, messages.WorkersQuestion(1, 10))


def test_a_frame_of_very_many_parts_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_messages, "_parts", None)
    with pytest.raises(BadMessage, match="parts"):
        parts_of(frame([LOOK_AT_OWNERS] * 65_536)[LENGTH_BYTES:])


def test_a_frame_of_as_many_parts_as_are_taken_is_taken() -> None:
    message = frame([LOOK_AT_OWNERS] * 65_535)[LENGTH_BYTES:]
    assert len(parts_of(message)) == 65_535


def test_more_wakes_than_a_server_tells_at_once_are_refused() -> None:
    told = [Wake("q", 1, False)] * (WAKES_MAX + 1)
    with pytest.raises(BadMessage, match="wakes"):
        messages.wakes_of(message_of_asking(messages.WAKES, told))


@pytest.mark.parametrize("part", [ARE_YOU_RUNNING, LOOK_AT_OWNERS, WHICH_WORKERS])
async def test_questions_that_share_a_frame_end_the_connection(owner: Owner, part: Part) -> None:
    reader, writer = await proven(owner)
    writer.write(frame([part, part]))
    async with asyncio.timeout(10):
        await end_of(reader)
    writer.close()
    assert not owner.asked


async def test_a_server_that_does_not_read_is_told_once_when_it_reads_again(asker: Asker, owner: Owner) -> None:
    await asker.insert(request(1))
    [incoming] = owner.listener.connections
    incoming.pause_writing()
    written = incoming.written_bytes
    for _ in range(1_000):
        incoming.tell_running()
    assert incoming.written_bytes == written
    incoming.resume_writing()
    await until(lambda: asker.link.told is not None)
    assert 0 < incoming.written_bytes - written < 1_000

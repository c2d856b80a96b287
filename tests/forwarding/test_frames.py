"""How what another server sends is cut into messages."""

from __future__ import annotations

import pytest

from pinlater.server.cluster.forwarding.frames import Frames
from pinlater.server.cluster.forwarding.messages import BadMessage


def framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


@pytest.mark.parametrize("piece", [1, 3, 7, 1_000])
def test_messages_are_the_same_in_whatever_pieces_they_come(piece: int) -> None:
    expected = [b"", b"a" * 9, b"", b"b" * 40, b"c"]
    data, frames = framed(*expected), Frames(40)
    found = [m for start in range(0, len(data), piece) for m in frames.feed(data[start : start + piece])]
    assert found == expected


def test_a_limit_holds_from_the_next_message_on() -> None:
    frames, found = Frames(4), []
    for message in frames.feed(framed(b"now", b"larger")):
        found.append(message)
        frames.limit_bytes = 6
    assert found == [b"now", b"larger"]


def test_a_message_beyond_the_limit_is_refused_by_its_length() -> None:
    frames = Frames(4)
    with pytest.raises(BadMessage, match="at most 4"):
        list(frames.feed(framed(b"now") + b"\0\0\0\5"))

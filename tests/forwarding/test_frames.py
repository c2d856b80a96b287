"""How what another server sends is cut into messages."""

from __future__ import annotations

import pytest

from pinlater.server.link.messages import BadMessage, Frames


def framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


@pytest.mark.parametrize("piece", [1, 3, 7, 1_000])
def test_messages_are_the_same_in_whatever_pieces_they_come(piece: int) -> None:
    expected = [b"", b"a" * 9, b"", b"b" * 40, b"c"]
    data, frames, found = framed(*expected), Frames(40), list[bytes]()
    for start in range(0, len(data), piece):
        frames.feed(data[start : start + piece], found.append)
    assert found == expected


def test_a_limit_holds_from_the_next_message_on() -> None:
    frames, found = Frames(4), list[bytes]()

    def take(message: bytes) -> None:
        found.append(message)
        frames.limit_bytes = 6

    frames.feed(framed(b"now", b"larger"), take)
    assert found == [b"now", b"larger"]


def test_a_message_beyond_the_limit_is_refused_by_its_length() -> None:
    found = list[bytes]()
    with pytest.raises(BadMessage, match="at most 4"):
        Frames(4).feed(framed(b"now") + b"\0\0\0\5", found.append)
    assert found == [b"now"]

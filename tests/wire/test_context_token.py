"""The token is found in the beginning of a call's frame, whatever comes behind it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.client import AsyncClient
from pinlater.wire.codec import Decoder, encode_call
from pinlater.wire.context_token import token_of_call
from pinlater.wire.errors import WireError
from pinlater.wire.framing import LENGTH_BYTES
from tests import structs as types

header = Decoder().header


def frame(context: types.RequestContext) -> bytes:
    return encode_call("createQueue", 7, context=context, name="q")[LENGTH_BYTES:]


@given(st.text(), st.none() | st.text(), st.none() | st.text())
def test_the_token_is_that_of_the_whole_call(source: str, request_id: str | None, token: str | None) -> None:
    message = frame(types.RequestContext(source, request_id, token))
    assert token_of_call(message, header(message).body_at) == (token or "")


async def test_the_python_client_sends_its_token_where_it_is_found() -> None:
    sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        sent.set_result(await reader.readexactly(size))
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(address, token="secret", retries=0) as client:
            asked = asyncio.create_task(client.queue_names())
            message = await sent
            asked.cancel()
    assert token_of_call(message, header(message).body_at) == "secret"


def test_a_beginning_that_ends_before_the_token_tells_nothing() -> None:
    message = frame(types.RequestContext("tests", "x" * 1_000, "secret"))
    body_at = header(message).body_at
    assert [token_of_call(message[:length], body_at) for length in (body_at, body_at + 3, 100, 1_000)] == [None] * 4


@pytest.mark.parametrize(
    "body", [b"\x0b\x00\x01", b"\x0c\x00\x02", b"\x0c\x00\x01\x08\x00\x01\x00\x00\x00\x01\x00", b""]
)
def test_a_context_of_another_form_tells_nothing(body: bytes) -> None:
    assert token_of_call(body, 0) is None


def test_a_length_beyond_the_beginning_or_below_zero_tells_nothing() -> None:
    for size in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        assert token_of_call(b"\x0c\x00\x01\x0b\x00\x64" + size + b"abc\x00", 0) is None


@given(st.binary(max_size=600))
def test_every_beginning_gives_a_text_or_nothing(head: bytes) -> None:
    try:
        body_at = header(head).body_at
    except WireError:
        body_at = 0
    assert token_of_call(head, body_at) is None or isinstance(token_of_call(head, body_at), str)

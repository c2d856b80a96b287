"""What a client may send, and what it gets for what it may not."""

from __future__ import annotations

import asyncio
import http.client
import logging

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.client import AsyncClient
from pinlater.client.errors import CallerError
from pinlater.server.http.access import permits_host
from pinlater.server.http.messages import BadRequest, Request, Response, parse_request
from pinlater.server.http.settings import HttpSettings
from pinlater.wire.codec import Decoder, encode_call
from pinlater.wire.generated import structs as types
from pinlater.wire.wrong_port import HTTP_PORT

from .conftest import Serve, Site

COMPACT_CALL = b"\x82\x21\x07\x0dgetQueueNames\x00"


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/stats.txt/", "/../etc/passwd", "/%2e%2e/etc/passwd", "/stats%2etxt", "//ping"]
)
async def test_unknown_paths_are_not_found_in_plain_text(site: Site, path: str) -> None:
    answer = await site.get(path)
    assert (answer.status, answer.text.partition(".")[0]) == (404, "Not found")
    assert "/stats.txt" in answer.text
    assert "the dashboard and its API have another port" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


async def test_answers_carry_the_headers_that_keep_browsers_safe(site: Site) -> None:
    for path in ("/ping", "/nothing"):
        headers = (await site.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


async def test_requests_follow_each_other_on_one_connection(site: Site) -> None:
    def ask_thrice() -> list[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=30)
        connection.connect()
        local = connection.sock.getsockname()
        answers = []
        for _ in range(3):
            connection.request("GET", "/ping.txt")
            answers.append(connection.getresponse().read())
            assert connection.sock.getsockname() == local
        connection.close()
        return answers

    assert await asyncio.to_thread(ask_thrice) == [b"pong"] * 3


async def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    request = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    sent = request % (b"ping.txt", b"") + request % (b"nothing", b"") + request % (b"health", b"Connection: close\r\n")
    answer = await site.raw(sent)
    bodies = answer.split(b"\r\n\r\n")[1:]
    texts = [body.split(b"HTTP/1.1")[0].strip() for body in bodies]
    assert [text.partition(b".")[0] for text in texts] == [b"pong", b"Not found", b"OK"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\n\r\n", b"400"),
        (b"GET ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /ping?" + b"a&" * 40 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000, b"431"),
        (b"POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"400"),
    ],
)
async def test_a_malformed_or_too_large_request_gets_an_answer_and_the_connection_ends(
    site: Site, data: bytes, status: bytes
) -> None:
    answer = await site.raw(data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in answer


async def test_a_body_with_two_lengths_is_refused_and_nothing_behind_it_is_answered(site: Site) -> None:
    """A proxy in front may see the end of the body elsewhere, and what follows as another's request."""
    two = b"POST /ping.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = await site.raw(two + b"GET /ping.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_body_in_chunks_is_bounded_too(serve: Serve) -> None:
    site = await serve(HttpSettings(port=0, max_body_bytes=1_000))
    head = b"POST /ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await site.raw(head + b"1f4\r\n" + b"x" * 500 + b"\r\n" + b"3e8\r\n" + b"x" * 1000)).startswith(
        b"HTTP/1.1 413"
    )


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 60))
def test_mutated_heads_give_a_request_or_our_one_error(noise: bytes, position: int) -> None:
    """The same path the connection takes: h11, then `parse_request`."""
    plain = b"GET /stats.txt?period=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=16_384)
    try:
        protocol.receive_data(plain[:position] + noise + plain[position:])
        event = protocol.next_event()
        if isinstance(event, h11.Request):
            assert parse_request(event.method, event.target, list(event.headers)).path.startswith("/")
    except (BadRequest, h11.RemoteProtocolError):
        pass


async def test_http_1_0_is_answered_and_closed(site: Site) -> None:
    assert (await site.raw(b"GET /ping.txt HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\npong")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9999", "127.0.0.1.evil.example", "10.0.0.1", ""])
async def test_a_loopback_listener_answers_to_loopbacks_names_only(site: Site, host: str) -> None:
    """A page that points its own name at 127.0.0.1 must not read us through the visitor's browser."""
    assert (await site.get("/stats.txt", Host=host)).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9999", "127.0.0.1:1", "127.8.8.8", "[::1]:9999"])
async def test_loopbacks_own_names_are_fine(site: Site, host: str) -> None:
    assert (await site.get("/ping", Host=host)).status == 200


def test_names_can_be_allowed_and_open_listeners_take_all() -> None:
    assert permits_host(HttpSettings(allowed_hosts=("PinLater.internal",)), "pinlater.internal:9999")
    assert permits_host(HttpSettings(host="0.0.0.0"), "anything.example")


async def test_a_page_takes_get_and_head_only(site: Site) -> None:
    answer = await site.get("/ping", "POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_a_fault_in_a_page_shows_nothing_of_its_insides(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: Request) -> Response:
        raise RuntimeError("the secret")

    site = await serve(HttpSettings(port=0), {"/broken": broken})
    with caplog.at_level(logging.ERROR):
        answer = await site.get("/broken")
    assert (answer.status, answer.text) == (500, "Internal error\n")
    assert "the secret" in caplog.text
    assert (await site.get("/ping")).status == 200


async def test_each_request_is_one_line_at_debug(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pinlater.server.http"):
        await site.get("/nothing?secret=1")
    lines = [vars(record) for record in caplog.records if record.getMessage() == "http request"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [("GET", "/nothing", 404)]


async def test_a_thrift_client_on_the_http_port_is_told_so_in_thrift(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """An HTTP answer would be a frame of a gigabyte to it."""
    call = encode_call("getQueueNames", 7, context=types.RequestContext(source="me"))
    answered = await site.raw(call)
    reply = Decoder().reply(answered[4:])
    assert (reply.name, reply.seqid, int.from_bytes(answered[:4])) == ("getQueueNames", 7, len(answered) - 4)
    assert reply.application_error is not None
    assert reply.application_error.message == HTTP_PORT
    assert "a Thrift client has connected to the HTTP port" in caplog.text


@pytest.mark.parametrize("sizes", [[4], [1] * 30, [10, 4, 1]])
async def test_a_thrift_client_that_sends_in_pieces_is_told_too(site: Site, sizes: list[int]) -> None:
    """Some libraries send the length of a frame, or each number of a call without frames, alone."""
    framed = encode_call("getQueueNames", 7, context=types.RequestContext(source="me"))
    for call in (framed, framed[4:], len(COMPACT_CALL).to_bytes(4, "big") + COMPACT_CALL, COMPACT_CALL):
        reader, writer = await site.connect()
        at = 0
        for size in sizes:
            writer.write(call[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
            at += size
        writer.write(call[at:])
        answered = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert HTTP_PORT.encode() in answered
        assert b"getQueueNames" in answered


async def test_a_tls_handshake_is_not_taken_for_a_thrift_call(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The length of this one looks like the beginning of a compact call."""
    answered = await site.raw(b"\x16\x03\x01\x01\x82\x01\x00\x01\x7e\x03\x03" + bytes(380))
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert "a Thrift client" not in caplog.text


async def test_the_client_shows_the_hint(site: Site) -> None:
    async with AsyncClient(f"127.0.0.1:{site.server.port}") as client:
        with pytest.raises(CallerError, match="this is PinLater's HTTP port"):
            await client.queue_names()

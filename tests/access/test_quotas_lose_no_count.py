"""Callers and the file of tokens do random things: each count of a quota is right at any time, and 0 once all callers have gone."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from pinlater.domain.access import Role
from pinlater.server.access.quotas import BYTES_LEAST, OwnQuota, TokenUse
from pinlater.server.thrift.answering import WAIT_OVER_QUOTA_MS
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.tls.settings import TlsSettings
from pinlater.wire.codec import encode_call
from tests import structs as types
from tests.access.conftest import GuardedServer
from tests.access.quota_callers import LONG_POLL, QUEUE, connect, jobs_of, until
from tests.tls.certificates import Authority

NAMES = ("a", "b", "c")
STEPS = 150
LONG_BYTES = 150_000
# The bytes of all requests do not fit either, so that the server sheds some.
THRIFT = ThriftSettings(port=0, max_buffered_bytes=1_500_000, max_pipelined_bytes=400_000)


class Disorder:
    """Callers with three tokens, which do things at random."""

    def __init__(self, server: GuardedServer, random: Random, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._random = random
        self._tls = tls
        self._secrets = [server.token(Role.WORK, Role.PRODUCE, name=name) for name in NAMES]
        self._writers: list[asyncio.StreamWriter] = []
        self._rests: dict[asyncio.StreamWriter, bytes] = {}  # of a frame that was begun
        self.seen: set[TokenUse] = set()

    async def step(self) -> None:
        """One more thing happens."""
        actions = [self._send] * 6 + [self._open] * 3 + [self._close, self._limit, self._remove_and_add]
        await self._random.choice(actions)()
        for _ in range(self._random.choice((0, 1, 5))):
            await asyncio.sleep(0)
        self._server.clock.advance(ms=WAIT_OVER_QUOTA_MS)
        self.check()

    async def _open(self) -> None:
        self._writers.append((await connect(self._server, None, tls=self._tls)).writer)

    async def _close(self) -> None:
        if self._writers:
            writer = self._writers.pop(self._random.randrange(len(self._writers)))
            if self._random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()

    async def _limit(self) -> None:
        draw = self._random.choice
        quota = OwnQuota(draw((None, 1, 3)), draw((None, 1, 2)), draw((None, BYTES_LEAST, 2 * LONG_BYTES)))
        self._server.limit(draw(NAMES), draw((quota, quota, OwnQuota())))

    async def _remove_and_add(self) -> None:
        token = self._server.revoke(self._random.choice(NAMES))
        await asyncio.sleep(0)
        self.check()
        self._server.restore(token)

    async def _send(self) -> None:
        if not self._writers:
            return
        writer = self._random.choice(self._writers)
        if (rest := self._rests.pop(writer, b"")) != b"":
            writer.write(rest)
            return
        frames = b"".join(self._frame() for _ in range(self._random.choice((1, 1, 1, 4))))
        if self._random.random() < 0.3:
            cut_at = self._random.randrange(1, len(frames))
            frames, self._rests[writer] = frames[:cut_at], frames[cut_at:]
        writer.write(frames)

    def _frame(self) -> bytes:
        random = self._random
        request_id = random.choice(("", "", "x" * 20_000, "x" * LONG_BYTES))  # in front of the token
        secret = random.choice([*self._secrets, *self._secrets, None, "pinlater_guessed"])
        context = types.RequestContext("tests", request_id, secret)
        no_acks = types.AckBatch(QUEUE)
        method, request = random.choice(
            (
                ("enqueueJobs", jobs_of(b"body")),
                ("enqueueJobs", jobs_of(b"x" * LONG_BYTES)),
                ("dequeueJobs", LONG_POLL),
                ("dequeueJobs", types.DequeueRequest(QUEUE, 5, acks=no_acks, wait_ms=60_000)),
                ("dequeueJobs", types.DequeueRequest("mail_new", 1, wait_ms=60_000)),
                ("ackJobs", no_acks),
            )
        )
        return encode_call(method, 1, context=context, request=request)

    def check(self) -> None:
        """The counts of the tokens are the sums of what the connections count."""
        connections, beyond, held_bytes = Counter[TokenUse](), Counter[TokenUse](), Counter[TokenUse]()
        for connection in self._server.server._connections:
            if (use := connection.use) is not None:
                self.seen.add(use.token)
                held_bytes[use.token] += use.bytes_held
                if use.counts_for is not None:
                    (beyond if use.is_beyond else connections)[use.counts_for] += 1
        self.seen.update(self._server.control.uses())
        for token in self.seen:
            assert (token.connections, token.connections_beyond) == (connections[token], beyond[token]), token.name
            assert token.bytes_held >= held_bytes[token], "requests of closed connections go on"
        assert 0 <= sum(token.polls for token in self.seen) <= self._server.server.answering.waiting

    async def all_leave(self) -> None:
        """All callers go, in the middle of what they send."""
        for writer in self._server.callers:
            if not writer.is_closing():
                writer.transport.abort()
        self._server.clock.advance(ms=WAIT_OVER_QUOTA_MS)  # for dequeues that carry acks; long polls wait much longer


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_each_count_is_right_at_any_time_and_nothing_counts_once_all_callers_have_gone(
    start: Callable[..., Awaitable[GuardedServer]],
    certificate_files: TlsSettings,
    authority: Authority,
    seed: int,
    encrypted: bool,
) -> None:
    guarded = await start(Role.PRODUCE, thrift=THRIFT, tls=certificate_files if encrypted else None)
    tls = ssl.create_default_context(cafile=str(authority.file)) if encrypted else None
    disorder = Disorder(guarded, Random(seed), tls)
    for _ in range(STEPS):
        await disorder.step()
    await disorder.all_leave()
    await until(lambda: guarded.server.connections == 0 and not any(guarded.server.budget.by_kind().values()))
    disorder.check()
    assert [token.name for token in disorder.seen if token.is_in_use] == []
    assert sum(token.refusals for token in disorder.seen) > 0, "no quota was tested"


async def test_a_connection_whose_handshake_fails_counts_for_no_token(
    start: Callable[..., Awaitable[GuardedServer]], certificate_files: TlsSettings
) -> None:
    guarded = await start(Role.PRODUCE, tls=certificate_files)
    token = guarded.token(Role.PRODUCE, name="a", quota=OwnQuota(connections=1))
    plain = await connect(guarded, token)
    plain.send("createQueue", name="q")
    await plain.closed()
    silent = await connect(guarded, token)
    silent.close()
    with pytest.raises(ssl.SSLError):
        await connect(guarded, token, tls=ssl.create_default_context())
    await until(lambda: guarded.server.connections == 0)
    assert not any(use.is_in_use or use.refusals for use in guarded.control.uses())

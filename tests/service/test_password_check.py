"""Password checks run off the loop, few at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pinlater.domain.errors import TooManyWaiting
from pinlater.domain.passwords import HashMalformed, hash_password
from pinlater.server.operations.passwords import PasswordCheck


@pytest.fixture(scope="module")
def stored() -> str:
    return hash_password("open sesame")


class HeldCheck:
    """Stands in for the slow function: each check waits until it is let go, and counts how many run at once."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.running = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._now = 0
        self.most_at_once = 0

    def __call__(self, password: str, _stored: str) -> bool:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        self.running.release()
        self.let_go.wait(30)
        with self._lock:
            self._now -= 1
        return password == "open sesame"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldCheck]:
    check = HeldCheck()
    monkeypatch.setattr("pinlater.server.operations.passwords.verify_password", check)
    yield check
    check.let_go.set()


def test_a_malformed_hash_is_refused_at_the_start() -> None:
    with pytest.raises(HashMalformed):
        PasswordCheck("open sesame")


async def test_a_bounded_number_of_checks_run_at_once_and_do_not_block_the_loop(stored: str, held: HeldCheck) -> None:
    passwords = PasswordCheck(stored, concurrent=2, waiting_max=4)
    checks = [asyncio.create_task(passwords.check("open sesame")) for _ in range(6)]
    await asyncio.to_thread(held.running.acquire, timeout=30)
    await asyncio.to_thread(held.running.acquire, timeout=30)
    assert not any(check.done() for check in checks)
    held.let_go.set()
    assert await asyncio.gather(*checks) == [True] * 6
    assert held.most_at_once == 2
    passwords.close()


async def test_over_the_bound_the_caller_is_told_so_at_once(stored: str, held: HeldCheck) -> None:
    passwords = PasswordCheck(stored, concurrent=1, waiting_max=1)
    checks = [asyncio.create_task(passwords.check("x")) for _ in range(2)]
    await asyncio.to_thread(held.running.acquire, timeout=30)
    with pytest.raises(TooManyWaiting):
        await passwords.check("open sesame")
    held.let_go.set()
    assert await asyncio.gather(*checks) == [False, False]
    assert await passwords.check("open sesame")
    passwords.close()


async def test_a_cancelled_caller_leaves_its_place_free_again(stored: str, held: HeldCheck) -> None:
    passwords = PasswordCheck(stored, concurrent=1, waiting_max=1)
    running = asyncio.create_task(passwords.check("x"))
    waiting = asyncio.create_task(passwords.check("x"))
    await asyncio.to_thread(held.running.acquire, timeout=30)
    waiting.cancel()
    await asyncio.wait([waiting])
    another = asyncio.create_task(passwords.check("open sesame"))
    held.let_go.set()
    assert await another
    assert not await running
    passwords.close()


async def test_after_closing_every_password_is_refused(stored: str) -> None:
    passwords = PasswordCheck(stored)
    passwords.close()
    assert not await passwords.check("open sesame")

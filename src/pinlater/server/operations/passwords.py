"""Checks the admin password off the event loop, few at a time.

A check is slow on purpose, so guessing must neither stall the loop nor pile up: `concurrent` checks run in threads, a bounded number
waits, and the next caller is refused at once. Weakness: a flood of wrong passwords keeps the right one waiting, or out.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from pinlater.domain.errors import TooManyWaiting
from pinlater.domain.passwords import check_hash_form, verify_password


class PasswordCheck:
    """Knows one stored hash, or None: then every password is wrong. Raises `HashMalformed` for a hash that can't be used."""

    def __init__(self, stored_hash: str | None, concurrent: int = 2, waiting_max: int = 16) -> None:
        if stored_hash is not None:
            check_hash_form(stored_hash)
        self._stored = stored_hash
        self._unfinished = 0
        self._unfinished_max = concurrent + waiting_max
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(concurrent, thread_name_prefix="password")

    @property
    def configured(self) -> bool:
        """Whether there is a password to compare with."""
        return self._stored is not None

    async def check(self, password: str) -> bool:
        """Returns whether it is the admin password. Raises `TooManyWaiting` when too many callers ask at once.

        A cancelled caller's check still runs to its end and counts until then.
        """
        if self._stored is None:
            return False
        with self._lock:
            if self._unfinished >= self._unfinished_max:
                raise TooManyWaiting("Too many password checks at once", retry_after_ms=1000)
            self._unfinished += 1
        try:
            checking = self._threads.submit(verify_password, password, self._stored)
        except RuntimeError:  # closed
            self._one_less(None)
            return False
        checking.add_done_callback(self._one_less)
        return await asyncio.wrap_future(checking)

    def close(self) -> None:
        """Lets the running checks end and refuses all others. Doesn't wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _one_less(self, _checked: Future[bool] | None) -> None:
        with self._lock:
            self._unfinished -= 1

"""Keeps access control up to date: takes over the tokens of the file when they change, and notes when each was last used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pinlater.domain.clock import Clock
from pinlater.server.access.control import AccessControl
from pinlater.server.access.last_use import note_last_uses
from pinlater.server.access.tokens import Token
from pinlater.server.config.settings import Settings
from pinlater.server.main.file_watch import FileWatch

logger = logging.getLogger(__name__)

TOKENS_LOOK_MS = 1_000
_NOTE_EVERY_S = 60.0


class AccessWatch:
    """Of a server with a file of tokens. `control` is what decides about calls. `changed(before, after)`: called after a change."""

    def __init__(self, path: Path, control: AccessControl, files: FileWatch, monotonic: Callable[[], float]) -> None:
        self.control = control
        self._path = path
        self._files = files
        self._monotonic = monotonic
        self._tokens = files.tokens
        self.changed: Callable[[Sequence[Token], Sequence[Token]], Awaitable[None]] = _nothing
        self._next_note_s = monotonic() + _NOTE_EVERY_S
        self._can_note = True

    async def look(self) -> None:
        """Reads the file, and once a minute notes the last uses."""
        before = self._tokens or ()
        await self._files.look_at_tokens()
        if self.take_over():
            await self.changed(before, self._tokens or ())
        if self._monotonic() >= self._next_note_s:
            self._next_note_s = self._monotonic() + _NOTE_EVERY_S
            await self.note()

    def take_over(self) -> bool:
        """Applies the tokens that the file holds, if they have changed; whether they have."""
        tokens = self._files.tokens
        if tokens is None or tokens is self._tokens:
            return False
        self._tokens = tokens
        self.control.replace(tokens)
        logger.info("tokens reloaded", extra={"tokens": len(tokens)})
        return True

    async def note(self) -> None:
        """Writes when tokens were last used. A folder that can't be written is logged once; then the times are missing."""
        used = self.control.take_used()
        if not used:
            return
        try:
            await asyncio.to_thread(note_last_uses, self._path, used, self.control.digests)
        except OSError as error:
            if self._can_note:
                logger.warning(
                    "the last use of tokens can't be noted beside their file, so nothing tells which are in use: %s",
                    error,
                )
            self._can_note = False


async def _nothing(before: Sequence[Token], after: Sequence[Token]) -> None:
    """Until a server says what to do."""


def access_watch(settings: Settings, files: FileWatch, clock: Clock) -> AccessWatch | None:
    """Access control as the settings say; None without a file of tokens."""
    path, tokens = settings.access.tokens_file, files.tokens
    if path is None or tokens is None:
        return None
    access = settings.access
    control = AccessControl(
        tokens,
        access.roles_without_token,
        clock.now_ms,
        clock.monotonic,
        access.masks,
        each_token=access.each_token,
        without_token=access.without_token,
    )
    return AccessWatch(path, control, files, clock.monotonic)

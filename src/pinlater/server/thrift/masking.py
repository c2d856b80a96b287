"""Masks bodies in answers to callers whose roles may not see them, whichever way the call came: commands, console and HTTP API are
clients like others. If whole bodies are masked, so are the texts that may quote them.

A dequeue that claims jobs is never masked: a worker needs its bodies whole. A filter by masked text is refused, since a caller could find
a body with it letter by letter. That refusal is an error of the call, not a denial that slows the caller down.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pinlater.domain.body_masks import QueueMask, masked_status, masked_text
from pinlater.domain.job_filter import group_of_texts

# Bytes of bodies that are searched before other calls get a turn of the event loop.
_BYTES_A_TURN = 32 * 1024


class Turns:
    """Yields to other calls after some bytes."""

    def __init__(self) -> None:
        self._bytes = 0

    async def masked(self, mask: QueueMask, body: bytes) -> bytes | None:
        """Returns the body as `QueueMask.masked` does."""
        self._bytes += len(body)
        if self._bytes >= _BYTES_A_TURN:
            self._bytes = 0
            await asyncio.sleep(0)
        return mask.masked(body)

    async def pause_for(self, texts: Any) -> None:
        """The same for the texts of a job."""
        self._bytes += len(texts.custom_status) + len(texts.error_text or "")
        if self._bytes >= _BYTES_A_TURN:
            self._bytes = 0
            await asyncio.sleep(0)


async def mask_info(turns: Turns, mask: QueueMask, info: Any) -> None:
    """Masks a job as the wire shows it."""
    if mask.texts:
        await turns.pause_for(info)
        _mask_texts(info)
    if info.body is None:
        return
    masked = await turns.masked(mask, info.body)
    if masked is not None:
        info.body, info.body_masked = masked, True


def _mask_texts(info: Any) -> None:
    attempts = info.attempts or ()
    error_type, error_text = info.error_type or "", info.error_text or ""
    if error_type or error_text or attempts:
        outcome = attempts[-1].outcome if attempts else ""
        info.failure_group = group_of_texts(info.headers or {}, outcome, error_type, error_text, info.custom_status)
    info.custom_status = masked_status(info.custom_status)
    info.progress = None
    info.error_text = masked_text(info.error_text)
    for attempt in attempts:
        attempt.error_text = masked_text(attempt.error_text)

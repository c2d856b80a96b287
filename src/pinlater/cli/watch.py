"""The options `--watch` and `--every`: an answer is shown again and again until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from pinlater.cli import notes, options, output
from pinlater.client.errors import WorldError
from pinlater.domain.clock import SystemClock

T = TypeVar("T")
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")]
Every = Annotated[str, typer.Option("--every", help="The interval of --watch, at least 100ms.")]
EVERY = "2s"
_EVERY_MS_MIN = 100


def interval_ms(watch: bool, every: str) -> int | None:
    """The interval of --every; None without --watch. A bad one is a usage error in any case."""
    pause_ms = options.span_ms(every, "--every") or 0
    if pause_ms < _EVERY_MS_MIN:
        raise typer.BadParameter(f"{every!r} is less than {_EVERY_MS_MIN}ms", param_hint="--every")
    return pause_ms if watch else None


async def show_answers(ask: Callable[[], Awaitable[T]], show: Callable[[T], None], every_ms: int | None) -> None:
    """Asks and shows once, or every `every_ms`. Only the first answer must come: later, standard error says that there is none."""
    found: T | None = await ask()
    while True:
        if found is not None:
            if every_ms is not None:
                output.clear_screen()
            show(found)
        if every_ms is None:
            return
        sys.stdout.flush()
        await asyncio.sleep(every_ms / 1000)
        found = await _answer_or_complaint(ask, said=found is None)


async def _answer_or_complaint(ask: Callable[[], Awaitable[T]], *, said: bool) -> T | None:
    """The answer; None if no server answers now, which standard error says once."""
    try:
        return await ask()
    except WorldError as error:
        if not said:
            now = output.iso(SystemClock().now_ms())
            notes.write(f"{now} no answer, still watching: {' '.join(error.message.split())}")
        return None

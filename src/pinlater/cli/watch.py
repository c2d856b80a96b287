"""The options `--watch` and `--every`: an answer is shown repeatedly until Ctrl-C."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from pinlater.cli import notes, options, output, watch_window
from pinlater.cli.call import OptionGroup, ServerCall
from pinlater.client import AsyncClient
from pinlater.client.errors import WorldError
from pinlater.domain.clock import SystemClock

T = TypeVar("T")
EVERY = "2s"
_EVERY_MS_MIN = 100


@dataclass(frozen=True)
class Watching(OptionGroup):
    """Whether and how often the answer is shown again."""

    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Refresh the output until Ctrl-C. A terminal shows the first lines, as many as fit; elsewhere the time is above each "
            "answer.",
        ),
    ] = False
    every: Annotated[str, typer.Option(help="The interval of --watch, at least 100ms.")] = EVERY

    def ask_and_show(
        self, call: ServerCall, ask: Callable[[AsyncClient], Awaitable[T]], show: Callable[[T], None]
    ) -> None:
        """Asks and shows the answer once, or repeatedly with --watch. A bad interval is a usage error in any case."""
        every_ms = options.span_ms(self.every, "--every") or 0
        if every_ms < _EVERY_MS_MIN:
            raise typer.BadParameter(f"{self.every!r} is less than {_EVERY_MS_MIN}ms", param_hint="--every")
        call.ask(lambda client: show_answers(lambda: ask(client), show, every_ms if self.watch else None))


async def show_answers(ask: Callable[[], Awaitable[T]], show: Callable[[T], None], every_ms: int | None) -> None:
    """Asks and shows the answer once, or every `every_ms`, preceded by the time unless a terminal or JSON shows what is new. Only the first
    answer is required: later, a note reports that there is none.
    """
    found = await ask()
    if every_ms is None:
        show(found)
        return
    complaint, before = "", ""
    while True:
        if watch_window.wanted():
            watch_window.draw(functools.partial(show, found), complaint)
        elif not complaint:
            output.clear_screen()
            if not notes.in_json():
                output.print_lines([f"{before}{output.iso(SystemClock().now_ms())}"])
                before = "\n"
            show(found)
        sys.stdout.flush()
        await asyncio.sleep(every_ms / 1000)
        try:
            found, complaint = await ask(), ""
        except WorldError as error:
            complaint = complaint or _complain(error)


def _complain(error: WorldError) -> str:
    """Returns the note that no server answers now. Writes it, unless the window on the terminal shows it."""
    text = f"{output.iso(SystemClock().now_ms())} no answer, still watching: {' '.join(error.message.split())}"
    if not (watch_window.wanted() and sys.stderr.isatty()):
        notes.write(text)
    return text

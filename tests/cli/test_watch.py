"""`--watch` on a terminal: what does not fit the window is cut at the bottom."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from pinlater.cli import notes, watch_window
from pinlater.client import Client, Job
from pinlater.testing import RealServer
from tests.cli.conftest import COMMAND, Pinlater

CLEAR = "\x1b[H\x1b[2J"
LINES = [f"line {number}" for number in range(30)]


def window(columns: int, lines: int) -> os.terminal_size:
    return os.terminal_size((columns, lines))


def test_what_fits_is_shown_whole() -> None:
    assert watch_window.fitted(LINES, ["note"], window(80, 32)) == [*LINES, "note"]


def test_of_more_lines_the_first_ones_stay_and_the_last_line_counts_the_others() -> None:
    shown = watch_window.fitted(LINES, ["note"], window(80, 10))
    assert shown == [*LINES[:7], "... 23 more lines; a larger window shows them", "note"]


def test_a_line_that_goes_on_in_the_next_row_counts_as_two_and_colour_has_no_width() -> None:
    lines = ["x" * 21, f"\x1b[1m{'b' * 20}\x1b[0m", *LINES]
    assert watch_window.fitted(lines, [], window(20, 7))[:2] == lines[:2]
    assert watch_window.fitted(lines, [], window(20, 7))[2].startswith("... 30 more lines")


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_the_smallest_window_shows_the_first_line(lines: int) -> None:
    assert watch_window.fitted(LINES, [], window(80, lines))[0] == LINES[0]
    assert watch_window.fitted([], ["note"] * 5, window(80, lines)) == ["note"] * 5


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("not needed")


def test_notes_stay_in_sight_below_the_first_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both streams are the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    notes.use_json(False)

    def show() -> None:
        notes.write("incomplete: a shard is unreachable")
        sys.stdout.write("\n".join(LINES) + "\n")

    watch_window.draw(show, "no answer")
    assert screen.getvalue().splitlines() == [
        f"{CLEAR}line 0",
        "line 1",
        "... 28 more lines; a larger window shows them",
        "incomplete: a shard is unreachable",
        "no answer",
    ]


# --- the command ----------------------------------------------------------------------------------------------------------


class _Watched:
    """A command at a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._said = ""

    def resize(self, columns: int, lines: int) -> None:
        termios.tcsetwinsize(self._terminal, (lines, columns))

    def picture(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the next whole one that is wanted."""
        deadline = time.monotonic() + 30
        while True:
            *whole, self._said = self._said.split(CLEAR)
            for each in whole:
                if (lines := each.splitlines()) and wanted(lines):
                    return lines
            assert select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0], self._said
            self._said += os.read(self._terminal, 65_536).decode().replace("\r\n", "\n")


@contextmanager
def watched(address: str, columns: int, lines: int, *arguments: str, colour: bool = False) -> Iterator[_Watched]:
    """`pinlater ... --watch` at a terminal of that size; ends with Ctrl-C."""
    ours, its = pty.openpty()
    found = _Watched(ours)
    found.resize(columns, lines)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm", "PINLATER_SERVERS": address} | ({} if colour else {"NO_COLOR": "1"})
    command = [*COMMAND, *arguments, "--watch", "--every", "100ms"]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        try:
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            os.close(ours)


def is_cut(lines: list[str]) -> bool:
    return bool(re.search(r"\.\.\. \d+ more lines; a larger window shows them", lines[-1]))


@pytest.mark.parametrize("colour", [False, True])
def test_a_window_shows_header_and_first_queues_and_follows_a_new_size(
    pinlater: Pinlater, queue: str, colour: bool
) -> None:
    names = [f"{queue[:10]}_{number:02}" for number in range(40)]
    pinlater.ok("queue", "create", *names)
    with watched(pinlater.address, 120, 24, "queue", "stats", *names, colour=colour) as watch:
        shown = watch.picture(is_cut)
        assert len(shown) == 23
        assert "queue" in shown[0]
        assert [line.split()[0] for line in shown[1:-1]] == names[:21]
        assert "... 19 more lines" in shown[-1]
        watch.resize(120, 30)
        assert "... 13 more lines" in watch.picture(lambda lines: len(lines) == 29)[-1]
        watch.resize(120, 60)
        whole = watch.picture(lambda lines: not is_cut(lines))
        assert [line.split()[0] for line in whole[1:]] == names


def test_the_worker_in_trouble_stays_in_sight(pinlater: Pinlater, queue: str) -> None:
    """Its reason is long, so that each worker is a block of lines."""
    with Client(pinlater.address, source="unlucky") as client:
        client.enqueue(queue, [Job(b"x", claim_timeout_ms=1_000)])
        client.dequeue(queue)
    for number in range(10):
        with Client(pinlater.address, source=f"a-{number}") as client:
            client.dequeue(queue)
    with watched(pinlater.address, 80, 24, "worker", "list", queue) as watch:
        shown = watch.picture(lambda lines: is_cut(lines) and lines[0] == "worker unlucky")
    assert len(shown) == 23
    assert all(cell_len(line) <= 80 for line in shown)


def test_a_watch_that_gets_no_answer_says_so_below_the_picture(tmp_path: Path) -> None:
    names = [f"q_{number:02}" for number in range(40)]
    with RealServer(tmp_path) as server:
        with Client(server.address) as client:
            for name in names:
                client.create_queue(name)
        with watched(server.address, 120, 24, "queue", "stats") as watch:
            watch.picture(is_cut)
            server.kill()
            shown = watch.picture(lambda lines: "no answer, still watching" in lines[-1])
    assert len(shown) == 23
    assert shown[1].startswith("q_00")
    assert is_cut(shown[:-1])

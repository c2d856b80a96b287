"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table


class Figures(NamedTuple):
    """The progress of the demo, according to the server's counts. `retried`: failed attempts after which the job was tried again."""

    enqueued: int = 0
    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    unfinished: int = 0
    seconds: float = 0.0
    jobs_per_second: int = 0


class DemoView:
    """Shows figures as they arrive, and the table at the end. `quiet` shows nothing."""

    def __init__(self, jobs: int, *, quiet: bool) -> None:
        self._jobs = jobs
        self._console = Console(quiet=quiet, highlight=False)
        self._live: Live | None = None
        self._lines_shown = 0

    def __enter__(self) -> Self:
        if self._console.is_interactive:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints one line."""
        self._console.print(text, soft_wrap=not self._console.is_terminal)

    def show(self, figures: Figures) -> None:
        """The state now."""
        if self._live is not None:
            done = figures.succeeded + figures.failed
            self._live.update(Group(ProgressBar(total=self._jobs, completed=done, width=60), _table(figures)))
            return
        self._lines_shown += 1
        if self._lines_shown % 2 == 0:
            self.say(
                f"{figures.seconds:5.1f} s  enqueued {figures.enqueued}  succeeded {figures.succeeded}  "
                f"retried {figures.retried}  failed {figures.failed}  waiting or running {figures.unfinished}"
            )

    def finish(self, figures: Figures, right: bool) -> None:
        """The outcome."""
        self._console.print(_table(figures))
        if right:
            self.say("[green]every job ended as it should[/green]")

    def invite(self, address: str, failed: int) -> None:
        """Prints where the dashboard is, and what to do there."""
        self.say(f"dashboard: [bold]{address}[/bold]")
        if failed:
            jobs = "1 job" if failed == 1 else f"{failed:,} jobs"
            self.say(f"{jobs} failed on purpose: its page Failed shows why, and a retry there succeeds")
        self.say("Ctrl-C ends the demo")


def _table(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = {
        "enqueued": f"{figures.enqueued:,}",
        "succeeded": f"[green]{figures.succeeded:,}[/green]",
        "retried": f"[yellow]{figures.retried:,}[/yellow]",
        "failed": f"[red]{figures.failed:,}[/red]",
        "rate": f"{figures.jobs_per_second:,} jobs/s",
        "time": f"{figures.seconds:.1f} s",
    }
    for name in rows:
        table.add_column(name, justify="right")
    table.add_row(*rows.values())
    return table

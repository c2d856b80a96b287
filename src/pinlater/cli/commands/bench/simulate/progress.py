"""The progress of a simulation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pinlater.cli import notes, output


@contextlib.contextmanager
def shown_progress(total_s: float) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal; nothing elsewhere, and for a caller that reads JSON."""
    console = Console(file=sys.stderr)
    if notes.in_json() or not console.is_interactive:
        yield lambda _: None
        return
    columns: tuple[Any, ...] = (TextColumn("simulated"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total_s, text="")
        yield lambda done_s: bar.update(task, completed=done_s, text=output.age(round(done_s * 1000)) or "")

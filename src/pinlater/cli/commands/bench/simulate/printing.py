"""Shows the progress of a simulation, its report and the list of faults."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pinlater.cli import notes, output
from pinlater.cli.call import CommandReply
from pinlater.domain.durations import duration_text

if TYPE_CHECKING:
    from pinlater.simulation.measure import Percentiles
    from pinlater.simulation.report import FaultReport, SimulationReport

_SAMPLED_MS = 1_000


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


def answer_faults(reply: CommandReply) -> None:
    """Prints the kinds of faults."""
    from pinlater.simulation.fault_kinds import FAULT_KINDS

    kinds = list(FAULT_KINDS.values())
    rows = [(kind.name, duration_text(kind.lasts_ms), kind.text) for kind in kinds]
    reply.answer(
        [
            {"name": kind.name, "target": kind.target.value, "duration_ms": kind.lasts_ms, "text": kind.text}
            for kind in kinds
        ],
        lambda: output.print_rows(["fault", "lasts", "what it does"], rows),
    )


def print_report(report: SimulationReport) -> None:
    output.print_fields(
        {
            "jobs enqueued": f"{report.enqueued:,}",
            "jobs succeeded": f"{report.succeeded:,}",
            "jobs failed": f"{report.failed:,}",
            **({"jobs unfinished": f"{report.unfinished:,}"} if report.unfinished else {}),
            "failed attempts": f"{report.failed_attempts:,}",
            "highest backlog": f"{report.backlog_max.backlog:,} after {output.age(report.backlog_max.at_ms)}",
            "broken promises": f"{len(report.broken):,}" if report.broken else "none",
            "seed": report.seed,
        }
    )
    output.print_lines([""])
    rows = [("wait from due to start", report.wait), ("answer to an enqueue", report.enqueue)]
    output.print_table(["time", "p50", "p95", "p99", "max"], [(name, *_cells(spread)) for name, spread in rows])
    if report.faults:
        output.print_lines([""])
        names = ["fault", "enqueue gap", "pickup gap", "max wait", "backlog", "drained"]
        output.print_table(names, [_fault_row(each) for each in report.faults])
    if report.errors:
        output.print_lines([""])
        rows_of_errors = [(call, kind, number) for (call, kind), number in report.errors.items()]
        output.print_table(["call", "error that a client saw", "number"], rows_of_errors)
    if report.broken:
        output.print_lines([""])
        output.print_text(list(report.broken[:20]))


def _cells(spread: Percentiles | None) -> tuple[str | None, ...]:
    return (None,) * 4 if spread is None else tuple(map(_short, spread))


def _short(span_ms: int | None) -> str | None:
    """`12ms`, `3.41s`, `12m 5s`."""
    if span_ms is None or not 1_000 <= span_ms < 60_000:
        return output.age(span_ms)
    return f"{span_ms / 1000:.2f}s"


def _fault_row(report: FaultReport) -> tuple[object, ...]:
    return (
        str(report.fault),
        _short(report.enqueue_gap_ms),
        _short(report.pickup_gap_ms),
        _short(report.wait_max_ms),
        f"{report.backlog_max:,}",
        _drained(report.drained_ms),
    )


def _drained(span_ms: int | None) -> str | None:
    """The backlog is measured once a second."""
    if span_ms is None:
        return "never"
    return "at once" if span_ms < _SAMPLED_MS else output.age(span_ms // _SAMPLED_MS * _SAMPLED_MS)


def as_json(report: SimulationReport) -> dict[str, object]:
    return {
        "seed": report.seed,
        "enqueued": report.enqueued,
        "succeeded": report.succeeded,
        "failed": report.failed,
        "unfinished": report.unfinished,
        "failed_attempts": report.failed_attempts,
        "wait": None if report.wait is None else report.wait._asdict(),
        "enqueue": None if report.enqueue is None else report.enqueue._asdict(),
        "backlog_max": report.backlog_max.backlog,
        "backlog_max_at_ms": report.backlog_max.at_ms,
        "faults": [_fault_json(each) for each in report.faults],
        "errors": [{"call": call, "error": kind, "number": number} for (call, kind), number in report.errors.items()],
        "broken_promises": list(report.broken),
    }


def _fault_json(report: FaultReport) -> dict[str, object]:
    fault = report.fault
    return {
        "fault": fault.kind.name,
        "at_ms": fault.at_ms,
        "duration_ms": fault.lasts_ms,
        "target": fault.number,
        **{name: value for name, value in report._asdict().items() if name != "fault"},
    }

"""`pinlater simulate`: a cluster on a simulated clock, network and store, with the operator's settings, load and faults."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pinlater.cli import exits, notes, options, output
from pinlater.cli.server_settings import ConfigFile, MoreSettings, load_settings
from pinlater.domain.durations import duration_text

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.simulation.measure import Percentiles
    from pinlater.simulation.report import FaultReport, SimulationReport
    from pinlater.simulation.scenario import PlannedFault, QueueLoad, Scenario

_QUEUE = "jobs"
_RATE = 10.0
_NUMBERS_MAX = 100
_SAMPLED_MS = 1_000
_SEED_MAX = 2**31 - 1


def simulate(
    config: ConfigFile = None,
    set_: MoreSettings = None,
    servers: Annotated[int, typer.Option("--servers", metavar="N", min=1, max=_NUMBERS_MAX, help="Servers.")] = 3,
    shards: Annotated[int, typer.Option("--shards", metavar="N", min=1, max=_NUMBERS_MAX, help="Shards.")] = 3,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Jobs a second to the queue `jobs`.", show_default="10")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME=RATE", help="A queue and its jobs a second; may be repeated."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, max=1000, help="Jobs an enqueue.")] = 1,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, max=1000, help="Workers.")] = 10,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Jobs that a worker runs at once.")
    ] = 16,
    handler_time: Annotated[
        str, typer.Option("--handler-time", metavar="DURATION", help="How long a job runs, on average.")
    ] = "200ms",
    failing_percent: Annotated[
        int,
        typer.Option(
            "--failing-percent", metavar="N", parser=options.integer_up_to(100), help="How many of 100 attempts fail."
        ),
    ] = 0,
    duration: Annotated[str, typer.Option("--for", metavar="DURATION", help="Simulated time: 10m, 1h.")] = "10m",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME@TIME",
            help="What goes wrong, when, for how long, and which server, shard or worker:"
            " kill-server@10m, lose-shard@20m+5m, kill-worker@1m+30s:2. May be repeated.",
        ),
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Print the faults that there are.")] = False,
    store_latency: Annotated[
        str, typer.Option("--store-latency", metavar="DURATION", help="Longest ordinary call to a shard.")
    ] = "2ms",
    network_latency: Annotated[
        str, typer.Option("--network-latency", metavar="DURATION", help="Longest ordinary way of a message.")
    ] = "1ms",
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, max=_SEED_MAX, help="Repeats a run.", show_default="random"),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history", metavar="FILE", help="Where to write the history if a promise was broken.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Simulate a cluster with faults, and print waits, backlog and fail-over times. Exit code 1 if a promise was broken.

    Example: pinlater simulate --config pinlater.toml --rate 15 --for 1h --fault kill-server@10m --fault lose-shard@20m+5m
    """
    from pinlater.simulation.scenario import Scenario

    if list_faults:
        _print_faults(json)
        return
    loaded = load_settings(config, set_, {}, driver_needed=False, tokens_needed=False)
    chosen_seed = secrets.randbelow(_SEED_MAX) if seed is None else seed
    scenario = Scenario(
        settings=loaded.settings,
        seed=chosen_seed,
        servers=servers,
        shards=shards,
        queues=_queues(queue, rate),
        batch=batch,
        workers=workers,
        concurrency=concurrency,
        handler_ms=_span(handler_time, "--handler-time"),
        failing=failing_percent / 100,
        lasts_ms=_span(duration, "--for", least_ms=1_000),
        store_latency_ms=_span(store_latency, "--store-latency"),
        network_latency_ms=_span(network_latency, "--network-latency"),
        faults=(),
    )
    scenario = scenario._replace(faults=[_fault(scenario, text) for text in fault or ()])
    _warn_of_settings(scenario.settings)
    _warn_of_overload(scenario)
    _run(scenario, history or Path(f"pinlater-simulation-{chosen_seed}.txt"), json)


def _run(scenario: Scenario, history: Path, as_json: bool) -> None:
    from pinlater.simulation.run import ClusterNotReady
    from pinlater.simulation.run import simulate as simulate_scenario

    try:
        with _progress(scenario.lasts_ms / 1000) as progress:
            report = simulate_scenario(scenario, history, progress)
    except ClusterNotReady as error:
        exits.fail(f"{error}; look at the time limits in the settings", exits.REFUSED)
    if as_json:
        output.print_json(_as_json(report))
    else:
        _print_report(report)
    if report.broken:
        exits.fail(
            f"{len(report.broken)} promises were broken; the history is in {history}, and --seed {report.seed} with the"
            " same options repeats it",
            exits.REFUSED,
        )


# --- the options --------------------------------------------------------------------------------------------------------------


def _span(text: str, option: str, least_ms: int = 0) -> int:
    span_ms = options.span_ms(text, option)
    assert span_ms is not None  # noqa: S101 - only None gives None
    if span_ms < least_ms:
        raise typer.BadParameter(f"{text!r} is less than {duration_text(least_ms)}", param_hint=option)
    return span_ms


def _queues(named: list[str] | None, rate: float | None) -> list[QueueLoad]:
    from pinlater.domain.queue import QUEUE_NAME_RULE, is_queue_name
    from pinlater.simulation.scenario import QueueLoad

    if named and rate is not None:
        raise typer.BadParameter("--rate and --queue exclude each other", param_hint="--rate")
    if not named:
        return [QueueLoad(_QUEUE, _positive(_RATE if rate is None else rate, "--rate"))]
    loads = {}
    for text in named:
        name, equals, number = text.partition("=")
        try:
            load = QueueLoad(name, float(number))
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=RATE, such as emails=2.5", param_hint="--queue")
        if not is_queue_name(name):
            raise typer.BadParameter(f"{name!r}: {QUEUE_NAME_RULE}", param_hint="--queue")
        _positive(load.rate, "--queue")
        if name in loads:
            raise typer.BadParameter(f"{name!r} is named twice", param_hint="--queue")
        loads[name] = load
    return list(loads.values())


def _positive(rate: float, option: str) -> float:
    if not 0 < rate < float("inf"):
        raise typer.BadParameter(f"{rate:g} jobs a second: the rate must be more than 0", param_hint=option)
    return rate


def _fault(scenario: Scenario, text: str) -> PlannedFault:
    from pinlater.simulation.scenario import check_fault, read_fault

    try:
        fault = read_fault(text)
        check_fault(scenario, fault)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--fault") from None
    return fault


def _warn_of_settings(settings: Settings) -> None:
    """Of what the simulated servers leave out."""
    files = [name for name in ("queue_limits_file", "server_set_file") if getattr(settings, name) is not None]
    for name in files:
        notes.write(f"note: {name} is not simulated")


def _warn_of_overload(scenario: Scenario) -> None:
    slots = scenario.workers * scenario.concurrency
    needed = scenario.rate * scenario.handler_ms / 1000
    if needed >= slots:
        notes.write(
            f"note: {scenario.rate:g} jobs a second of {duration_text(scenario.handler_ms)} need more than the {slots} slots"
            " of the workers, so the backlog grows"
        )


# --- progress -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(total_s: float) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing elsewhere."""
    console = Console(file=sys.stderr)
    if not console.is_interactive:
        yield lambda _: None
        return
    columns: tuple[Any, ...] = (TextColumn("simulated"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total_s, text="")
        yield lambda done_s: bar.update(task, completed=done_s, text=output.age(round(done_s * 1000)) or "")


# --- output -------------------------------------------------------------------------------------------------------------------


def _print_faults(as_json: bool) -> None:
    from pinlater.simulation.fault_kinds import FAULT_KINDS

    if as_json:
        output.print_json(
            [
                {"name": kind.name, "target": kind.target.value, "duration_ms": kind.lasts_ms, "text": kind.text}
                for kind in FAULT_KINDS.values()
            ]
        )
        return
    rows = [(kind.name, duration_text(kind.lasts_ms), kind.text) for kind in FAULT_KINDS.values()]
    output.print_blocks(["fault", "lasts", "what it does"], rows)


def _print_report(report: SimulationReport) -> None:
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
    """The backlog is looked at once a second."""
    if span_ms is None:
        return "never"
    return "at once" if span_ms < _SAMPLED_MS else output.age(span_ms // _SAMPLED_MS * _SAMPLED_MS)


def _as_json(report: SimulationReport) -> dict[str, object]:
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

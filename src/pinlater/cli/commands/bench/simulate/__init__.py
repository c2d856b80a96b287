"""`pinlater bench simulate`: a cluster on a simulated clock, network and store, with the operator's settings, load and faults."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinlater.cli import exits, notes, options
from pinlater.cli.call import CommandReply
from pinlater.cli.commands.bench.simulate import printing
from pinlater.cli.server_settings import ConfigFile, MoreSettings, load_settings
from pinlater.domain.durations import duration_text

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.simulation.scenario import PlannedFault, QueueLoad, Scenario

_QUEUE = "jobs"
_RATE = 10.0
_NUMBERS_MAX = 100
SEED_MAX = 2**31 - 1

Servers = Annotated[int, typer.Option("--servers", metavar="N", min=1, max=_NUMBERS_MAX, help="Servers.")]
Shards = Annotated[int, typer.Option("--shards", metavar="N", min=1, max=_NUMBERS_MAX, help="Shards.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, max=1000, help="Workers.")]


def simulate(
    reply: CommandReply,
    config: ConfigFile = None,
    set_: MoreSettings = None,
    servers: Servers = 3,
    shards: Shards = 3,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Jobs a second to the queue `jobs`.", show_default="10")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="NAME=RATE", help="A queue and its jobs a second; may be repeated.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Jobs an enqueue.")] = 1,
    workers: Workers = 10,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs that a worker runs at once.")] = 16,
    handler_time: Annotated[str, typer.Option(metavar="DURATION", help="How long a job runs, on average.")] = "200ms",
    failing_percent: Annotated[
        int, typer.Option(metavar="N", parser=options.integer_up_to(100), help="How many of 100 attempts fail.")
    ] = 0,
    duration: Annotated[str, typer.Option("--for", metavar="DURATION", help="Simulated time: 10m, 1h.")] = "10m",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME@TIME",
            help="What goes wrong, when, for how long, and which server, shard or worker:"
            " kill-server@10m, lose-shard@20m+5m, kill-worker@1m+30s:2. May be repeated.",
        ),
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Print the faults that there are.")] = False,
    store_latency: Annotated[str, typer.Option(metavar="DURATION", help="Longest ordinary call to a shard.")] = "2ms",
    network_latency: Annotated[
        str, typer.Option(metavar="DURATION", help="Longest ordinary way of a message.")
    ] = "1ms",
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=SEED_MAX, help="Repeats a run.", show_default="random")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the history if a promise was broken.", show_default=False),
    ] = None,
) -> None:
    """Simulate a cluster with faults. Prints waits, backlog and fail-over times. Exit code 1 if a promise was broken.

    Example: pinlater bench simulate --config pinlater.toml --rate 15 --for 1h --fault kill-server@10m --fault lose-shard@20m+5m
    """
    from pinlater.simulation.scenario import Scenario

    if list_faults:
        printing.answer_faults(reply)
        return
    loaded = load_settings(config, set_, {}, driver_needed=False, tokens_needed=False)
    chosen_seed = secrets.randbelow(SEED_MAX) if seed is None else seed
    scenario = Scenario(
        settings=loaded.settings,
        seed=chosen_seed,
        servers=servers,
        shards=shards,
        queues=_queues_of(queue, rate),
        batch=batch,
        workers=workers,
        concurrency=concurrency,
        handler_ms=_span_of(handler_time, "--handler-time"),
        failing=failing_percent / 100,
        lasts_ms=_span_of(duration, "--for", least_ms=1_000),
        store_latency_ms=_span_of(store_latency, "--store-latency"),
        network_latency_ms=_span_of(network_latency, "--network-latency"),
        faults=(),
    )
    scenario = scenario._replace(faults=[_fault_of(scenario, text) for text in fault or ()])
    _warn_of_settings(scenario.settings)
    _warn_of_overload(scenario)
    _run(reply, scenario, history or Path(f"pinlater-simulation-{chosen_seed}.txt"))


def _run(reply: CommandReply, scenario: Scenario, history: Path) -> None:
    from pinlater.simulation.run import ClusterNotReady
    from pinlater.simulation.run import simulate as simulate_scenario

    try:
        with printing.shown_progress(scenario.lasts_ms / 1000) as progress:
            report = simulate_scenario(scenario, history, progress)
    except ClusterNotReady as error:
        exits.fail(f"{error}; look at the time limits in the settings", exits.REFUSED)
    reply.answer(printing.as_json(report), lambda: printing.print_report(report))
    if report.broken:
        exits.fail(
            f"{len(report.broken)} promises were broken; the history is in {history}, and --seed {report.seed} with the"
            " same options repeats it",
            exits.REFUSED,
        )


def _warn_of_settings(settings: Settings) -> None:
    """Prints notes about what the simulated servers leave out."""
    files = [name for name in ("queue_limits_file", "server_set_file") if getattr(settings, name) is not None]
    for name in files:
        notes.note(f"{name} is not simulated")


def _warn_of_overload(scenario: Scenario) -> None:
    slots = scenario.workers * scenario.concurrency
    needed = scenario.rate * scenario.handler_ms / 1000
    if needed >= slots:
        notes.note(
            f"{scenario.rate:g} jobs a second of {duration_text(scenario.handler_ms)} need more than the {slots} slots"
            " of the workers, so the backlog grows"
        )


def _span_of(text: str, option: str, least_ms: int = 0) -> int:
    span_ms = options.span_ms(text, option)
    assert span_ms is not None  # noqa: S101 - only None gives None
    if span_ms < least_ms:
        raise typer.BadParameter(f"{text!r} is less than {duration_text(least_ms)}", param_hint=option)
    return span_ms


def _queues_of(named: list[str] | None, rate: float | None) -> list[QueueLoad]:
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


def _fault_of(scenario: Scenario, text: str) -> PlannedFault:
    from pinlater.simulation.scenario import check_fault, read_fault

    with options.naming("--fault", text):
        fault = read_fault(text)
        check_fault(scenario, fault)
        return fault

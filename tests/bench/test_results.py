"""Results go to a file and come back; goals judge; a comparison names what got worse."""

from __future__ import annotations

import io
from array import array
from pathlib import Path

import pytest
from rich.console import Console

from bench import table
from bench.load import percentiles_ms
from bench.results import Goal, Results, RowResult, machine_facts, median_of, read_results


def results(rate: float, p99: float) -> Results:
    row = RowResult(
        "enqueue",
        "enqueue one",
        [Goal("rate", 100, 200), Goal("p99_ms", 10, 3, "ms", at_most=True)],
        {"rate": rate, "p99_ms": p99},
        {"wire_rate": 400.0},
        [{"rate": rate}],
    )
    facts = machine_facts(Path.cwd(), {"store": "sqlite", "database": "SQLite 3"})
    return Results(facts, {"full": False}, [row])


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.mark.parametrize(("value", "verdict"), [(99, "missed"), (100, "must"), (199, "must"), (200, "aim")])
def test_a_rate_is_judged_by_its_least(value: float, verdict: str) -> None:
    assert Goal("rate", 100, 200).verdict(value) == verdict


@pytest.mark.parametrize(("value", "verdict"), [(11, "missed"), (10, "must"), (3, "aim")])
def test_a_latency_is_judged_by_its_most(value: float, verdict: str) -> None:
    assert Goal("p99_ms", 10, 3, at_most=True).verdict(value) == verdict


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    before = results(150, 5)
    before.write(path)
    assert read_results(path) == before


def test_results_of_another_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        read_results(path)


def test_a_comparison_names_what_got_worse_and_nothing_else() -> None:
    assert table.compare(results(100, 5), results(80, 6), quiet()) == ["enqueue.rate", "enqueue.p99_ms"]
    assert table.compare(results(100, 5), results(95, 5.2), quiet()) == []
    assert table.compare(results(100, 5), results(200, 1), quiet()) == []


def test_the_table_shows_every_goal_and_a_failed_row() -> None:
    console = quiet()
    shown = results(150, 5)
    shown.rows.append(RowResult("broken", "broken", failed="it fell over"))
    table.show(shown, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for piece in ("≥ 100", "≤ 10", "150", "it fell over"):
        assert piece in text


def test_medians_are_taken_over_the_runs_that_have_the_figure() -> None:
    assert median_of([{"a": 1, "b": 5}, {"a": 3}, {"a": 2}]) == {"a": 2, "b": 5}


def test_percentiles_of_nothing_are_nothing() -> None:
    assert percentiles_ms(array("d")) == {}
    assert percentiles_ms(array("d", [0.001] * 99 + [0.1]))["p50"] == 1.0
    assert percentiles_ms(array("d", [0.001] * 99 + [0.1]))["max"] == 100.0

"""Results for people's eyes: the table of one run, and two runs side by side."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.results import Goal, Results, RowResult

_COLOURS = {"aim": "green", "must": "yellow", "missed": "red"}
# A change smaller than this is the machine's mood.
NOISE = 0.10


def number(value: float) -> str:
    """Short: 41,200 · 12.5 · 0.412."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _goal_cells(row: RowResult, goal: Goal) -> tuple[str, str, str, str]:
    sign = "≤" if goal.at_most else "≥"
    value = row.figures.get(goal.measure)
    if value is None:
        return goal.measure, f"{sign} {number(goal.must)}", f"{sign} {number(goal.aim)}", "–"
    colour = _COLOURS[goal.verdict(value)]
    figure = f"[{colour}]{number(value)} {goal.unit}[/]".replace(" [/]", "[/]")
    return goal.measure, f"{sign} {number(goal.must)}", f"{sign} {number(goal.aim)}", figure


def show(results: Results, console: Console) -> None:
    """The table: green reached its aim, yellow its must, red neither."""
    table = Table(title="PinLater benchmark", caption=_caption(results), show_lines=True)
    for heading in ("work", "measure", "must", "aim", "figure", "all figures (medians)", "references"):
        table.add_column(heading, overflow="fold")
    for row in results.rows:
        goals = [_goal_cells(row, goal) for goal in row.goals] or [("", "", "", "")]
        columns = ["\n".join(cells) for cells in zip(*goals, strict=True)]
        figures = f"[red]failed: {row.failed}[/]" if row.failed else _lines(row.figures)
        table.add_row(row.title, *columns, figures, _lines(row.references))
    console.print(table)
    for row in results.rows:
        for note in row.notes:
            console.print(f"[dim]{row.name}: {note}[/]")


def _lines(figures: dict[str, float]) -> str:
    return "\n".join(f"{name} {number(value)}" for name, value in figures.items())


def _caption(results: Results) -> str:
    machine = results.machine
    return (
        f"{machine['cores']} cores · {machine['cpu']} · Python {machine['python']} · SQLite {machine['sqlite']} · "
        f"{machine['file_system']} · commit {machine['commit']} · {machine['at']}"
    )


def _goodness(row: RowResult, name: str) -> int:
    """+1 where more is better, -1 where less is, 0 where nobody said."""
    for goal in row.goals:
        if goal.measure == name:
            return -1 if goal.at_most else 1
    if name.endswith(("_ms", "_mb", "p50", "p90", "p99", "p999", "max")):
        return -1
    return 1 if "rate" in name or "ratio" in name else 0


def compare(old: Results, new: Results, console: Console) -> list[str]:
    """Prints both runs side by side; returns the figures that got worse by more than the noise."""
    table = Table(title=f"{old.machine['commit']} → {new.machine['commit']}", show_lines=False)
    for heading in ("work", "figure", "old", "new", "change"):
        table.add_column(heading, justify="right" if heading in {"old", "new", "change"} else "left")
    worse: list[str] = []
    before = {row.name: row for row in old.rows}
    for row in new.rows:
        for name in (name for name in row.figures if row.name in before and name in before[row.name].figures):
            was, now = before[row.name].figures[name], row.figures[name]
            change = (now - was) / was if was else 0.0
            good = change * _goodness(row, name)
            colour = "red" if good < -NOISE else "green" if good > NOISE else "dim"
            if good < -NOISE:
                worse.append(f"{row.name}.{name}")
            table.add_row(row.name, name, number(was), number(now), f"[{colour}]{change:+.0%}[/]")
    console.print(table)
    for key in ("cores", "cpu", "file_system", "python", "sqlite"):
        if old.machine.get(key) != new.machine.get(key):
            console.print(f"[yellow]not the same {key}: {old.machine.get(key)} → {new.machine.get(key)}[/]")
    missing = sorted(before.keys() ^ {row.name for row in new.rows})
    if missing:
        console.print(f"[yellow]only in one of the two: {', '.join(missing)}[/]")
    return worse

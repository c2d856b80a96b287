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
    """The table, then each row's other figures. Green reached its aim, yellow its must, red neither."""
    table = Table(title="PinLater benchmark", caption=_caption(results), show_lines=True)
    table.add_column("work", max_width=44)
    for heading in ("measure", "must", "aim", "figure"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "measure" else "right")
    for row in results.rows:
        if row.failed:
            table.add_row(row.title, "[red]failed[/]", "", "", "")
            continue
        goals = [_goal_cells(row, goal) for goal in row.goals] or [("", "", "", "")]
        table.add_row(row.title, *("\n".join(cells) for cells in zip(*goals, strict=True)))
    console.print(table)
    for row in results.rows:
        _show_details(row, console)


def _show_details(row: RowResult, console: Console) -> None:
    console.print(f"[bold]{row.name}[/] ({len(row.runs)} runs)", highlight=False)
    if row.failed:
        console.print(f"  failed: {row.failed}", style="red", markup=False)
    for title, figures in (("figures", row.figures), ("references", row.references)):
        if figures:
            text = " · ".join(f"{name} {number(value)}" for name, value in figures.items())
            console.print(f"  {title}: {text}", highlight=False)
    for note in row.notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _caption(results: Results) -> str:
    machine = results.machine
    return (
        f"{machine['cores']} cores · {machine['cpu']} · Python {machine['python']} · {machine['database']} · "
        f"{machine['file_system']} · commit {machine['commit']} · {machine['at']}"
    )


def _goodness(row: RowResult, name: str) -> int:
    """+1 if more is better, -1 if less is, 0 if unknown."""
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
    for key in ("store", "database", "database_settings", "cores", "cpu", "file_system", "python"):
        if old.machine.get(key) != new.machine.get(key):
            console.print(f"[yellow]not the same {key}: {old.machine.get(key)} → {new.machine.get(key)}[/]")
    missing = sorted(before.keys() ^ {row.name for row in new.rows})
    if missing:
        console.print(f"[yellow]only in one of the two: {', '.join(missing)}[/]")
    return worse

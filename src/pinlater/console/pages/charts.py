"""Charts of a queue's history as lines in a unit square, which the template draws as SVG and CSS colours. Pure.

Texts are not part of the drawing: stretching a drawing to the width of a screen would stretch them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pinlater.console.endpoints.queues_history import HistoryAnswer, HistoryPointItem, MarkItem, PercentilesItem
from pinlater.console.pages import formats

WIDTH, HEIGHT = 1_000, 100
"""Size of the drawing, in its own units."""
_LABELS = 5
_DAY_MS = 86_400_000
# How long after its end a minute may be missing because it is not stored yet.
_STORED_MS = 75_000
_STEPS = (1, 2, 5)
_SPANS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000,
    1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 43_200_000,
)  # fmt: skip

Value = Callable[[HistoryPointItem], float | None]


class Line(NamedTuple):
    """One line. `kind`: its colour. `path`: of an SVG. `newest`: its last value, for people."""

    name: str
    kind: str
    path: str
    newest: str


class MarkLine(NamedTuple):
    """A deploy mark, and its position in the drawing."""

    x: float
    at_ms: int
    text: str


class Chart(NamedTuple):
    """`top` and `half`: the values at the upper edge and in the middle, for people. `summary`: the whole in a sentence."""

    title: str
    lines: Sequence[Line]
    top: str
    half: str
    summary: str


class Range(NamedTuple):
    """The range of a chart: the steps from `from_ms` on and before `until_ms`."""

    from_ms: int
    until_ms: int
    step_ms: int

    def x(self, at_ms: float) -> float:
        """Returns where a time is in the drawing."""
        return round(WIDTH * (at_ms - self.from_ms) / max(1, self.until_ms - self.from_ms), 1)

    def steps(self, points: Sequence[HistoryPointItem]) -> list[tuple[int, HistoryPointItem | None]]:
        """Returns all steps that are known, each with its point."""
        found = {point.at_ms: point for point in points}
        first_ms = self.from_ms - self.from_ms % self.step_ms
        known_ms = max(self.until_ms - _STORED_MS, max(found, default=0) + self.step_ms)
        times = range(first_ms, self.until_ms, self.step_ms)
        return [(at_ms, found.get(at_ms)) for at_ms in times if at_ms + self.step_ms <= known_ms or at_ms in found]

    def seconds(self, at_ms: int) -> float:
        """Returns how much of a step is over."""
        return max(1_000, min(self.step_ms, self.until_ms - at_ms)) / 1000


class DrawnHistory(NamedTuple):
    """The charts of a queue, with the labels of the times below them, and deploy marks."""

    charts: Sequence[Chart]
    labels: Sequence[str]
    marks: Sequence[MarkLine]


def drawn(history: HistoryAnswer) -> DrawnHistory:
    """Draws the history of a queue."""
    shown = Range(history.from_ms, history.until_ms, history.step_s * 1000)
    return DrawnHistory(charts_of(history.points, shown), labels_of(shown), mark_lines(history.marks, shown))


def charts_of(points: Sequence[HistoryPointItem], shown: Range) -> list[Chart]:
    """The charts of rates, depth, age, waits and run times."""

    def per_second(count: Callable[[HistoryPointItem], int]) -> Value:
        return lambda point: count(point) / shown.seconds(point.at_ms)

    rates: Sequence[tuple[str, str, Value]] = (
        ("In", "in", per_second(lambda point: point.enqueued)),
        ("Succeeded", "succeeded", per_second(lambda point: point.succeeded)),
        ("Failed", "failed", per_second(lambda point: point.failed + point.timed_out)),
    )
    depth: Sequence[tuple[str, str, Value]] = (
        ("Due", "due", lambda point: point.due),
        ("Running", "running", lambda point: point.running),
        ("Scheduled", "scheduled", lambda point: point.scheduled),
    )
    age: Sequence[tuple[str, str, Value]] = (("Oldest due job", "due", lambda point: point.oldest_ms),)
    return [
        _chart("Jobs a second", rates, points, shown, formats.rate, empty=0.0),
        _chart("Jobs", depth, points, shown, _jobs, empty=0.0),
        _chart("Age of the oldest due job", age, points, shown, formats.span, empty=0.0, spans=True),
        _chart("Wait until a worker", _shares(lambda point: point.wait_ms), points, shown, formats.span, spans=True),
        _chart("Run time", _shares(lambda point: point.run_ms), points, shown, formats.span, spans=True),
    ]


def _jobs(number: float) -> str:
    return formats.number(int(number) if number == int(number) else number)


def _shares(of: Callable[[HistoryPointItem], PercentilesItem | None]) -> Sequence[tuple[str, str, Value]]:
    def value(name: str) -> Value:
        return lambda point: None if (found := of(point)) is None else getattr(found, name)

    return (("Half", "p50", value("p50")), ("90 %", "p90", value("p90")), ("99 %", "p99", value("p99")))


def _chart(
    title: str,
    lines: Sequence[tuple[str, str, Value]],
    points: Sequence[HistoryPointItem],
    shown: Range,
    words: Callable[[float], str],
    *,
    empty: float | None = None,
    spans: bool = False,
) -> Chart:
    """Returns a chart. `empty`: the value of a step in which nothing happened; None leaves a gap."""
    steps = shown.steps(points)
    values = [[_value(point, value, empty) for _, point in steps] for _, _, value in lines]
    highest = max((number for of_line in values for number in of_line if number is not None), default=0.0)
    top = nice_top(highest, spans=spans)
    drawn = [
        Line(name, kind, path_of([at_ms for at_ms, _ in steps], of_line, top, shown), _newest(of_line, words))
        for (name, kind, _), of_line in zip(lines, values, strict=True)
    ]
    newest = ", ".join(f"{line.name} {line.newest}" for line in drawn)
    return Chart(title, drawn, words(top), words(top / 2), f"{title}: now {newest}; at most {words(highest)}.")


def _value(point: HistoryPointItem | None, value: Value, empty: float | None) -> float | None:
    found = None if point is None else value(point)
    return empty if found is None else found


def _newest(values: Sequence[float | None], words: Callable[[float], str]) -> str:
    return next((words(number) for number in reversed(values) if number is not None), "–")


def nice_top(highest: float, *, spans: bool = False) -> float:
    """A round number that is not below the highest value."""
    if spans:
        known = next((span_ms for span_ms in _SPANS_MS if span_ms >= highest), None)
        return known if known is not None else -(-highest // _DAY_MS) * _DAY_MS
    if highest <= 0:
        return 1
    power = 1e-3
    while True:
        for step in _STEPS:
            if step * power >= highest:
                return round(step * power, 3) if power < 1 else round(step * power)
        power *= 10


def path_of(times: Sequence[int], values: Sequence[float | None], top: float, shown: Range) -> str:
    """A line through the middles of the steps, with gaps where a value is missing. A value between two gaps is a short line."""
    parts: list[str] = []
    for index, (at_ms, value) in enumerate(zip(times, values, strict=True)):
        if value is None:
            continue
        y = round(HEIGHT * (1 - value / top), 1)
        begins = index == 0 or values[index - 1] is None
        ends = index + 1 == len(values) or values[index + 1] is None
        if begins:
            parts.append(f"M{max(0.0, shown.x(at_ms)):g} {y:g}")
        parts.append(f"L{shown.x(at_ms + shown.step_ms / 2):g} {y:g}")
        if ends:
            parts.append(f"L{min(WIDTH, shown.x(at_ms + shown.step_ms)):g} {y:g}")
    return "".join(parts)


def labels_of(shown: Range) -> list[str]:
    """Times at equal distances."""
    span_ms = shown.until_ms - shown.from_ms
    pattern = "%H:%M" if span_ms <= _DAY_MS else "%d %b"
    times = [shown.from_ms + span_ms * number // (_LABELS - 1) for number in range(_LABELS)]
    return [f"{datetime.fromtimestamp(at_ms / 1000, UTC):{pattern}}" for at_ms in times]


def mark_lines(marks: Sequence[MarkItem], shown: Range) -> list[MarkLine]:
    """The marks in the range, the newest first."""
    inside = [mark for mark in marks if shown.from_ms <= mark.at_ms <= shown.until_ms]
    return [MarkLine(shown.x(mark.at_ms), mark.at_ms, mark.text) for mark in reversed(inside)]


class Sparkline(NamedTuple):
    """The due jobs of a queue over the last half hour: the area below the line, the line, and the whole in words."""

    area: str
    line: str
    summary: str


def sparkline_of(points: Sequence[HistoryPointItem], shown: Range) -> Sparkline | None:
    """Returns the chart, or None if no job was due in that time."""
    steps = shown.steps(points)
    values = [0 if point is None or point.due is None else point.due for _, point in steps]
    highest = max(values, default=0)
    if not highest:
        return None
    line = path_of([at_ms for at_ms, _ in steps], values, highest, shown)
    start, end = shown.x(steps[0][0]), shown.x(steps[-1][0] + shown.step_ms)
    minutes = round((shown.until_ms - shown.from_ms) / 60_000)
    return Sparkline(
        f"{line}L{end:g} {HEIGHT}L{start:g} {HEIGHT}Z",
        line,
        f"Due over the last {minutes} minutes: at most {formats.number(highest)}, now {formats.number(values[-1])}",
    )

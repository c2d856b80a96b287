"""A body as a tree of JSON, as text or as hexadecimal, cut to what a page can show. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pinlater.console.pages.formats import ShownText, shown, visible

Way = Literal["json", "text", "hex"]
_SHOWN_BYTES, _WHOLE_BYTES = 16 * 1024, 2 * 1024 * 1024
_PARSED_BYTES = 256 * 1024
_NODES_MAX, _DEPTH_MAX, _VALUE_CHARACTERS = 1_500, 40, 2_000
_ROW = 16


class JsonNode(NamedTuple):
    """A value of JSON. `kind`: object, array, string, number, true, false, null or more. `size`: of an object or array."""

    name: str
    kind: str
    text: str
    size: int
    children: Sequence[JsonNode]


@dataclass(frozen=True, slots=True)
class BodyView:
    """`ways`: the possible representations. Of `tree` and `text`, the one for `way` is set."""

    way: Way
    ways: Sequence[Way]
    size_bytes: int
    tree: JsonNode | None
    text: ShownText | None


class _Parsed(NamedTuple):
    """A value of JSON, which may be null."""

    value: Any


def body_view(body: bytes, wanted: Way | None, *, whole: bool) -> BodyView:
    """The body in the requested representation, or in the best possible one."""
    parsed, is_text = _parsed(body), _is_text(body)
    possible: dict[Way, bool] = {"json": parsed is not None, "text": is_text, "hex": True}
    ways = [way for way in possible if possible[way]]
    way = wanted if wanted in ways else ways[0]
    if way == "json" and parsed is not None:
        return BodyView(way, ways, len(body), _TreeMaker().node("", parsed.value, 0), None)
    return BodyView(way, ways, len(body), None, _text_of(body, way, _WHOLE_BYTES if whole else _SHOWN_BYTES))


def _parsed(body: bytes) -> _Parsed | None:
    if not body or len(body) > _PARSED_BYTES:
        return None
    try:
        return _Parsed(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


def _text_of(body: bytes, way: Way, bytes_max: int) -> ShownText:
    if way != "hex":
        return shown(body.decode(), bytes_max)
    part = body[: bytes_max // 4]
    return ShownText("\n".join(_hex_rows(part)), len(body), len(part) < len(body))


def _hex_rows(part: bytes) -> Iterator[str]:
    for start in range(0, len(part), _ROW):
        row = part[start : start + _ROW]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:06x}  {row.hex(' '):<{3 * _ROW - 1}}  {printed}"


class _TreeMaker:
    """Makes nodes up to a number and a depth. A single node says how many others there are."""

    def __init__(self) -> None:
        self._left = _NODES_MAX

    def node(self, name: str, value: Any, depth: int) -> JsonNode:
        """Returns the node of a value, with its children."""
        self._left -= 1
        name = visible(name[:_VALUE_CHARACTERS])
        match value:
            case dict():
                return JsonNode(name, "object", "", len(value), self._children(value.items(), len(value), depth))
            case list():
                items = ((str(index), each) for index, each in enumerate(value))
                return JsonNode(name, "array", "", len(value), self._children(items, len(value), depth))
            case str():
                text = json.dumps(value[:_VALUE_CHARACTERS], ensure_ascii=False) + "…" * (
                    len(value) > _VALUE_CHARACTERS
                )
                return JsonNode(name, "string", visible(text), 0, ())
        kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
        return JsonNode(name, kind, _plain(value), 0, ())

    def _children(self, items: Iterable[tuple[str, Any]], size: int, depth: int) -> list[JsonNode]:
        made: list[JsonNode] = []
        for name, value in items:
            if self._left <= 0 or depth >= _DEPTH_MAX:
                made.append(JsonNode("", "more", f"{size - len(made):,} more, see the text", 0, ()))
                break
            made.append(self.node(name, value, depth + 1))
        return made


def _plain(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # an integer with too many digits
        return "a number with too many digits"

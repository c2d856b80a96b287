"""Converts between the shapes of the API and the values of the client: bodies, times, filters, answers. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, cast

from msgspec import UNSET, inspect

from pinlater.client.values import JobState
from pinlater.console.endpoints.fields import AnswerShape
from pinlater.console.problems import invalid
from pinlater.domain.job_filter import FILTER_FIELDS, FilterFault, JobFilter, filter_from

S = TypeVar("S", bound=AnswerShape)


def like(shape: type[S], value: Any, **given: Any) -> S:
    """Returns the shape with the attributes of `value` that have the names of its fields; those in `given` are not read from it. Values
    within it become the shapes of the fields, members of enumerations their words.
    """
    fields = {name: converted(getattr(value, name)) for name, converted in _conversions(shape) if name not in given}
    return shape(**fields, **given)


@cache
def _conversions(shape: type[AnswerShape]) -> list[tuple[str, Callable[[Any], Any]]]:
    kind: Any = inspect.type_info(shape)
    return [(field.name, _conversion(field.type)) for field in kind.fields]


def _conversion(kind: inspect.Type) -> Callable[[Any], Any]:
    """Returns the function that makes a value of this type of a client's value."""
    match kind:
        case inspect.Metadata(type=inner):
            return _conversion(inner)
        case inspect.UnionType(types=types):
            possible = [each for each in types if not isinstance(each, inspect.NoneType)]
            one = _conversion(possible[0]) if len(possible) == 1 else _same
            return lambda value: None if value is None else one(value)
        case inspect.StructType(cls=shape):
            return partial(like, cast("type[AnswerShape]", shape))
        case inspect.ListType(item_type=inner):
            item = _conversion(inner)
            return lambda values: list(map(item, values))
        case inspect.DictType(value_type=inner):
            item = _conversion(inner)
            return lambda values: {name: item(value) for name, value in values.items()}
        case inspect.LiteralType():
            return lambda value: value.name.lower() if isinstance(value, Enum) else value
    return _same


def _same(value: Any) -> Any:
    return value


def state_of(name: str) -> JobState:
    """The state with the API's name."""
    return JobState[name.upper()]


def due_ms(
    run_after_ms: int | None, delay_ms: int | None, now_ms: int, names: str = "run_after_ms delay_ms"
) -> int | None:
    """A time, given as such or as a duration from now; `names` are those of the two fields."""
    time_field, span_field = names.split()
    if run_after_ms is not None and delay_ms is not None:
        raise invalid(span_field, f"{time_field} and {span_field} exclude each other")
    return run_after_ms if delay_ms is None else now_ms + delay_ms


def filter_of(chosen: Any, state: JobState, *, skip_cancelled: bool = False) -> JobFilter:
    """The filter in a `JobsFilter`. Raises RequestRefused, which names the field."""
    given = {field.word: getattr(chosen, field.word) for field in FILTER_FIELDS}
    try:
        return filter_from(state, given, skip_cancelled=skip_cancelled)
    except FilterFault as fault:
        raise invalid(fault.field.word, fault.text) from None


def body_given(item: Any, where: str) -> bytes | None:
    """The one body that an item gives, or None. `where`: the path of the item, for errors."""
    given = [name for name in ("body", "body_json", "body_base64") if getattr(item, name) is not UNSET]
    if len(given) > 1:
        raise invalid(f"{where}.{given[1]}", f"{' and '.join(given)} exclude each other")
    match given:
        case ["body"]:
            return str(item.body).encode()
        case ["body_base64"]:
            try:
                return base64.b64decode(item.body_base64, validate=True)
            except (binascii.Error, ValueError) as error:
                raise invalid(f"{where}.body_base64", f"not base64: {error}") from None
    return bytes(item.body_json) if given else None


def body_shown(body: bytes | None) -> dict[str, str | None]:
    """The two fields of a body in an answer."""
    if body is None:
        return {"body": None, "body_base64": None}
    try:
        return {"body": body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(body).decode()}

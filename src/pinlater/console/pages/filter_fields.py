"""The fields of a filter on pages: as a form, as a query of the URL, and as text. Times are durations before now, such as `10m`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta, defstruct

from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.pages.formats import moment
from pinlater.console.pages.page import PageCall
from pinlater.domain.body_text import text_of_regex
from pinlater.domain.job_filter import FILTER_FIELDS, FieldKind, FilterField

_SEVERAL = frozenset({FieldKind.NAMES, FieldKind.HEADERS})


class InputField(NamedTuple):
    """An input of the form, and its value."""

    field: FilterField
    value: object

    @property
    def label(self) -> str:
        return self.field.span_label or self.field.label

    @property
    def is_narrow(self) -> bool:
        return self.field.kind in {FieldKind.NUMBER, FieldKind.MOMENT}

    @property
    def is_search(self) -> bool:
        return self.field.kind is FieldKind.BODY_TEXT


def _asked(field: FilterField) -> tuple[str, Any, None]:
    number = field.kind is FieldKind.NUMBER
    kind: Any = Annotated[int, Meta(ge=field.least, le=field.most)] if number else str
    return field.asked, kind | None, None


if TYPE_CHECKING:

    class FilterQuery(RequestShape, frozen=True, kw_only=True):
        """Which jobs, in the query of a page."""

else:
    FilterQuery = defstruct(
        "FilterQuery",
        list(map(_asked, FILTER_FIELDS)),
        bases=(RequestShape,),
        namespace={"__doc__": "Which jobs, in the query of a page."},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


def inputs_of(query: FilterQuery, *, common: bool) -> Sequence[InputField]:
    """Returns the inputs that are shown at once, or the others."""
    return [
        InputField(field, getattr(query, field.asked) or "") for field in FILTER_FIELDS if field.is_common is common
    ]


def asked_of(query: FilterQuery) -> dict[str, Any]:
    """Returns the values of the query, by the words of its fields."""
    return {field.asked: value for field in FILTER_FIELDS if (value := getattr(query, field.asked))}


def wanted_of(call: PageCall, query: FilterQuery) -> dict[str, Any]:
    """Returns the values of the query in the names and types of the API. Raises RequestRefused."""
    given = asked_of(query)
    return {
        field.word: call.ago_ms(field.asked) if field.span else _several(field, given[field.asked])
        for field in FILTER_FIELDS
        if field.asked in given
    }


def from_form(fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a form whose names are those of the API, as the API takes them."""
    several = {field.word for field in FILTER_FIELDS if field.kind in _SEVERAL}
    return {name: (value,) if name in several else value for name, value in fields.items() if value}


def to_form(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the API's values as the fields of a form."""
    return {name: value[-1] if isinstance(value, tuple) else value for name, value in wanted.items()}


def in_words(chosen: Any) -> Mapping[str, object]:
    """Returns the values of a `FilterItem` for people, by words."""
    words: dict[str, object] = {}
    for field in FILTER_FIELDS:
        if field.kind is FieldKind.BODY_TEXT:
            continue
        value = getattr(chosen, field.word)
        if field.kind is FieldKind.REGEX and value and (text := text_of_regex(value)) is not None:
            words["text"] = text
        elif value not in (None, "", 0) and value != []:
            words[field.label.lower() if field.kind is FieldKind.MOMENT else field.word.replace("_", " ")] = _shown(
                field, value
            )
    return words


def _shown(field: FilterField, value: Any) -> object:
    if field.kind in _SEVERAL:
        return ", ".join(value)
    return moment(value) if field.kind is FieldKind.MOMENT else value


def _several(field: FilterField, value: object) -> object:
    return (value,) if field.kind in _SEVERAL else value

"""Which jobs are meant: the fields of a filter, as requests send them and answers show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, defstruct

from pinlater.console.endpoints.fields import AnswerShape, Key, Moment, RequestShape, State, doc
from pinlater.domain.job_filter import FILTER_FIELDS, FieldKind, FilterField

_REQUESTED: Mapping[FieldKind, tuple[Any, Any]] = {
    FieldKind.REGEX: (str | None, None),
    FieldKind.BODY_TEXT: (Key | None, None),
    FieldKind.NAMES: (Sequence[Key], ()),
    FieldKind.HEADERS: (Sequence[str], ()),
    FieldKind.TEXT: (str | None, None),
    FieldKind.MOMENT: (Moment | None, None),
}
_ANSWERED: Mapping[FieldKind, Any] = {
    FieldKind.REGEX: str | None,
    FieldKind.NAMES: Sequence[str],
    FieldKind.HEADERS: Sequence[str],
    FieldKind.TEXT: str,
    FieldKind.MOMENT: int | None,
}


def _requested(field: FilterField) -> tuple[str, Any, Any]:
    """Returns the name, type and default of a field of requests."""
    if field.kind is FieldKind.NUMBER:
        kind, unset = Annotated[int, Meta(ge=field.least, le=field.most)], None if field.least else 0
        kind = kind if unset == 0 else kind | None
    else:
        kind, unset = _REQUESTED[field.kind]
    return field.word, Annotated[kind, doc(field.text)], unset


def _answered(field: FilterField) -> tuple[str, Any]:
    number: Any = int if field.least == 0 else int | None
    return field.word, _ANSWERED.get(field.kind, number)


if TYPE_CHECKING:

    class JobsFilter(RequestShape, frozen=True, kw_only=True):
        """Selects jobs of a state. A field that is not given does not restrict the selection."""

else:
    JobsFilter = defstruct(
        "JobsFilter",
        list(map(_requested, FILTER_FIELDS)),
        bases=(RequestShape,),
        namespace={"__doc__": "Selects jobs of a state. A field that is not given does not restrict the selection."},
        module=__name__,
        frozen=True,
        kw_only=True,
    )
FilterItem: Any = defstruct(
    "FilterItem",
    [("state", State), *(_answered(field) for field in FILTER_FIELDS if field.kind is not FieldKind.BODY_TEXT)],
    bases=(AnswerShape,),
    namespace={"__doc__": "Which jobs a run changes."},
    module=__name__,
    frozen=True,
    kw_only=True,
)

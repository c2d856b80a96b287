"""The options that select jobs, one for each field of a filter, for all commands that select jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Annotated, Any

import typer

from pinlater.cli import options
from pinlater.cli.call import OptionGroup
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import FILTER_FIELDS, FieldKind, FilterFault, FilterField, JobFilter, filter_from

_TYPES: Mapping[FieldKind, Any] = {
    FieldKind.NUMBER: int | None,
    FieldKind.NAMES: list[str] | None,
    FieldKind.HEADERS: list[str] | None,
}
_METAVARS = {FieldKind.HEADERS: "NAME=VALUE", FieldKind.TEXT: "TEXT", FieldKind.BODY_TEXT: "TEXT"}
_SHORT = {"priority": "-p"}


class ChosenJobs(OptionGroup):
    """The values of the options."""

    def __init__(self, **given: Any) -> None:
        self._given = given

    @classmethod
    def parameters(cls) -> Sequence[Parameter]:
        return list(map(_parameter, FILTER_FIELDS))

    @property
    def is_all(self) -> bool:
        """Whether no option is given."""
        return not any(value is not None and value != [] for value in self._given.values())

    def of(self, state: JobState, *, skip_cancelled: bool = False) -> JobFilter:
        """Returns the filter for jobs in a state. A wrong value is a usage error that names its option."""
        now_ms = SystemClock().now_ms()
        values = {}
        for field in FILTER_FIELDS:
            value = self._given.get(field.asked)
            if field.span and value is not None:
                value = now_ms - (options.span_ms(value, _option(field)) or 0)
            values[field.word] = value
        try:
            return filter_from(state, values, skip_cancelled=skip_cancelled)
        except FilterFault as fault:
            raise typer.BadParameter(fault.text, param_hint=_option(fault.field)) from None


def _option(field: FilterField) -> str:
    return f"--{field.asked.replace('_', '-')}"


def _parameter(field: FilterField) -> Parameter:
    names = [_option(field), *([_SHORT[field.word]] if field.word in _SHORT else [])]
    metavar = "SPAN" if field.span else _METAVARS.get(field.kind)
    option = typer.Option(*names, metavar=metavar, help=(field.span_text or field.text).replace("`", ""))
    kind: Any = Annotated[_TYPES.get(field.kind, str | None), option]
    return Parameter(field.asked, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)

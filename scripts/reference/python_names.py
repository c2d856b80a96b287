"""Describes public Python names as Markdown, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ForwardRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def find(dotted: str) -> Any:
    """The object of that name. Raises AttributeError or ImportError if the name does not exist."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def described(dotted: str, *, given: bool = False, without: Iterable[str] = ()) -> str:
    """A class with its public methods, a value with its fields, an exception, an enum with its members, or a function.

    `given`: a user gets the class from the library and never makes one. `without`: names of methods to leave out.
    """
    found, name = find(dotted), dotted.rpartition(".")[2]
    if not inspect.isclass(found):
        return _item(name, found)
    if issubclass(found, Enum):
        return f"{_item(name, found, takes=False)} One of {', '.join(f'`{member.name}`' for member in found)}."
    takes = not given and (not issubclass(found, BaseException) or "__init__" in vars(found))
    members = [(kind, at) for kind, at in _members(found) if kind not in without]
    if not members:
        return _item(name, found, takes=takes)
    items = [_item(f".{kind}", at, takes=not isinstance(at, property)) for kind, at in members]
    return "\n\n".join([f"**`{_heading(name, found, takes=takes)}`**", _text(found), "\n".join(items)])


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties in the order of the source, those of our own bases included."""
    seen: set[str] = set()
    for base in (base for base in found.__mro__ if base.__module__.startswith("pinlater")):
        for name, member in vars(base).items():
            shown = inspect.isfunction(member) or isinstance(member, property)
            if shown and not name.startswith("_") and name not in seen and inspect.getdoc(member):
                seen.add(name)
                yield name, member


def _item(name: str, found: Any, *, takes: bool = True) -> str:
    if name.startswith(".") and getattr(found, "__name__", name[1:]) != name[1:]:
        return f"- `{name}`: Another name of `.{found.__name__}`."
    text = _text(found).replace("\n", "\n  ").replace("\n  \n", "\n\n")
    return f"- `{_heading(name, found, takes=takes)}`: {text}"


def _heading(name: str, found: Any, *, takes: bool) -> str:
    waits = "await " if inspect.iscoroutinefunction(found) else ""
    return f"{waits}{name}{signature(found) if takes else ''}"


def _text(found: Any) -> str:
    return inspect.getdoc(found) or ""


def signature(found: Any) -> str:
    """As Python writes it, without `self` and without the modules of the types."""
    parameters: list[str] = []
    seen = inspect.signature(found)
    for parameter in seen.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parameters and not _takes_any(parameters):
            parameters.append("*")
        if parameter.name != "self":
            parameters.append(_parameter(parameter))
    returns = "" if inspect.isclass(found) else _type(seen.return_annotation)
    return f"({', '.join(parameters)})" + (f" -> {returns}" if returns not in ("", "None") else "")


def _takes_any(parameters: list[str]) -> bool:
    return any(parameter.startswith("*") for parameter in parameters)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = _STARS.get(parameter.kind.name, "")
    annotation = _type(parameter.annotation)
    text = f"{stars}{parameter.name}" + (f": {annotation}" if annotation else "")
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    return f"{text} = {f'{type(default).__name__}.{default.name}' if isinstance(default, Enum) else repr(default)}"


def _type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    return _MODULE.sub("", annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))

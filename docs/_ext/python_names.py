"""The directive `python-names`: what public names take and do, from their signatures and docstrings.

    ```{python-names} pinlater.client.AsyncClient pinlater.client.Client
    :given:
    :without: submit
    ```

shows a class with its public methods, a value with its fields, an exception, an enum with its members, or a function. `:given:`
says that a class is handed out and never made by its user, `:without:` names methods to leave out. The text is the docstring's, read
as Markdown. Never write such a list by hand: the docs would be the second place that says it.
"""

from __future__ import annotations

import inspect
import re
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, ForwardRef

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def find(dotted: str) -> Any:
    """The object of that name. Raises where there is none, which fails the build."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def described(dotted: str, *, given: bool = False, without: Iterable[str] = ()) -> str:
    """A name with all that belongs to it, as Markdown."""
    found, name = find(dotted), dotted.rpartition(".")[2]
    if not inspect.isclass(found):
        return _entry(name, found)
    if issubclass(found, Enum):
        members = ", ".join(f"`{member.name}`" for member in found)
        return f"{_entry(name, found, takes=False)} One of {members}."
    own = not given and (not issubclass(found, BaseException) or "__init__" in vars(found))
    members = [_member(kind, at) for kind, at in _members(found) if kind not in without]
    return "\n\n".join([_entry(name, found, takes=own), *members])


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties in the order of the source, those of our own bases included."""
    seen: set[str] = set()
    for base in (base for base in found.__mro__ if base.__module__.startswith("pinlater")):
        for name, member in vars(base).items():
            shown = inspect.isfunction(member) or isinstance(member, property)
            if shown and not name.startswith("_") and name not in seen and inspect.getdoc(member):
                seen.add(name)
                yield name, member


def _member(name: str, member: Any) -> str:
    return _entry(f".{name}", member, takes=not isinstance(member, property))


def _entry(name: str, found: Any, *, takes: bool = True) -> str:
    waits = "await " if inspect.iscoroutinefunction(found) else ""
    text = (inspect.getdoc(found) or "").replace("\n", "\n  ")
    return f"`{waits}{name}{signature(found) if takes else ''}`\n: {text}"


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
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
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


class PythonNames(Directive):
    """Its arguments are dotted names."""

    required_arguments = 1
    optional_arguments = 100
    option_spec: ClassVar[dict[str, object]] = {"given": directives.flag, "without": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """A list of definitions."""
        without = self.options.get("without", "").split()
        text = "\n\n".join(described(name, given="given" in self.options, without=without) for name in self.arguments)
        whole = nodes.container()
        self.state.nested_parse(StringList(text.splitlines()), self.content_offset, whole)
        return [whole]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("python-names", PythonNames)
    return {"parallel_read_safe": True}

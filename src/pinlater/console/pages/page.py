"""The types of pages and actions, shared by `routes` and the modules of the pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from pinlater.console.endpoint import Content
from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.pages.api import Api
from pinlater.console.problems import invalid
from pinlater.console.reading import fields_of
from pinlater.domain.durations import duration_ms
from pinlater.domain.link_urls import NO_LINKS, LinkUrls

Fields = TypeVar("Fields", bound=RequestShape)


@dataclass(frozen=True, slots=True)
class PageCall:
    """A request for a page, or of a form. `fields`: those of the query or the form, without empty ones. `queue` and `descriptor`: those
    in the path.

    `may(method)`: whether the servers accept the visitor's calls of a method of the protocol, as far as it is known. `pins`: the queues
    that the visitor has pinned to the top of the overview. `links`: from jobs to their traces and their code."""

    api: Api
    now_ms: int
    queue: str
    descriptor: str
    fields: Mapping[str, str]
    may: Callable[[str], bool] = lambda _: True
    pins: Set[str] = frozenset()
    links: LinkUrls = NO_LINKS

    def read(self, shape: type[Fields]) -> Fields:
        """Returns the fields in this shape. Raises RequestRefused."""
        return self.read_as(shape, self.fields)

    def ago_ms(self, field: str) -> int | None:
        """Returns the time that a field such as `10m` means, subtracted from now, or None without the field. Raises RequestRefused."""
        text = self.fields.get(field, "").strip()
        if not text:
            return None
        try:
            return max(0, self.now_ms - duration_ms(text))
        except ValueError as error:
            raise invalid(field, f"{text[:100]!r} {error}") from None

    def read_as(self, shape: type[Fields], fields: Mapping[str, str]) -> Fields:
        """Returns other fields, without empty ones, in this shape. Raises RequestRefused."""
        return fields_of({name: value for name, value in fields.items() if value}, shape, "form")


class PageView(SimpleNamespace):
    """What a template shows: the values as attributes. `polls`: whether a browser reloads the page's data every two seconds."""

    def __init__(self, title: str, *, polls: bool = True, **values: Any) -> None:
        super().__init__(title=title, polls=polls, **values)


class Goto(NamedTuple):
    """The page to show instead. `message`: the result of an action, for people. `job`: the descriptor of a job to which it links.
    `pins`: the queues that are pinned from now on; None changes nothing."""

    path: str
    message: str = ""
    job: str = ""
    pins: Set[str] | None = None


class SitePage(NamedTuple):
    """`section`: the entry of the navigation. A page without a template is a download."""

    path: str
    template: str
    section: str
    show: Callable[[PageCall], Awaitable[PageView | Goto | Content]]


class Action(NamedTuple):
    """A form that changes something."""

    path: str
    act: Callable[[PageCall], Awaitable[Goto]]


def moment_ms(text: str, field: str, otherwise: str) -> int | None:
    """Returns the time that an ISO 8601 text means, in UTC if it names no zone, or None for an empty one. Raises RequestRefused;
    `otherwise` says what it is not.
    """
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return max(0, round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise invalid(field, f"{text[:100]!r} {otherwise}") from None


def queue_path(queue: str, **fields: object) -> str:
    """The path of a queue's page."""
    return with_fields(f"/queues/{quote(queue, safe='')}", **fields)


def bulk_path(queue: str, **fields: object) -> str:
    """The path of the page that changes many jobs of a queue."""
    return with_fields(f"/queues/{quote(queue, safe='')}/bulk", **fields)


def job_path(descriptor: str, **fields: object) -> str:
    """The path of a job's page."""
    return with_fields(f"/jobs/{quote(descriptor, safe=':')}", **fields)


def paths(path: str, query: RequestShape) -> Callable[..., str]:
    """Returns a function for a template: the path with the fields of the query that are not the default ones, and changes. A change
    begins at the first page.
    """
    default = type(query)()
    given = {name: getattr(query, name) for name in query.__struct_fields__ if name not in ("page", "after")}
    kept = {name: "" if value == getattr(default, name) else value for name, value in given.items()}
    return lambda **changes: with_fields(path, **{**kept, **changes})


def with_fields(path: str, /, **fields: object) -> str:
    """A path with a query of the fields that are not empty."""
    given = {
        name: "true" if value is True else value for name, value in fields.items() if value not in (None, "", False)
    }
    return f"{path}?{urlencode(given)}" if given else path

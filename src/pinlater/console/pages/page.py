"""The types of pages and actions, shared by `routes` and the modules of the pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from pinlater.console.endpoint import Content
from pinlater.console.pages.api import Api
from pinlater.console.problems import invalid
from pinlater.console.reading import fields_of
from pinlater.console.shapes.fields import RequestShape
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """What a template shows. `polls`: whether a browser reloads the page's data every two seconds."""

    title: str
    polls: bool = True


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


def queue_path(queue: str, **fields: object) -> str:
    """The path of a queue's page."""
    return with_fields(f"/queues/{quote(queue, safe='')}", **fields)


def bulk_path(queue: str, **fields: object) -> str:
    """The path of the page that changes many jobs of a queue."""
    return with_fields(f"/queues/{quote(queue, safe='')}/bulk", **fields)


def job_path(descriptor: str, **fields: object) -> str:
    """The path of a job's page."""
    return with_fields(f"/jobs/{quote(descriptor, safe=':')}", **fields)


def with_fields(path: str, /, **fields: object) -> str:
    """A path with a query of the fields that are not empty."""
    given = {name: value for name, value in fields.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path

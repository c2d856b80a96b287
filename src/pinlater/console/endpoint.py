"""The declaration of an endpoint: method and path, function, and the types of its input and answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

from pinlater.client import AsyncClient
from pinlater.console.endpoints.fields import RequestShape
from pinlater.console.poll_limit import PollLimit

Query = TypeVar("Query", bound=RequestShape)
Body = TypeVar("Body")
Answer = TypeVar("Answer")


class Content(NamedTuple):
    """The body of a job as received or sent. `media_type` has no parameters; '' if the caller gave none."""

    data: bytes
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[Query, Body]):
    """A request that was read and checked. `header`: the value of the endpoint's own header, '' if it was not given.

    `now_ms`: the time from which all durations of the request count.
    `stopping`: whether the console stops, so that an empty answer is better than none.
    """

    client: AsyncClient
    now_ms: int
    stopping: Callable[[], bool]
    poll_limit: PollLimit
    queue: str
    descriptor: str
    header: str
    query: Query
    body: Body


class HeaderParameter(NamedTuple):
    """A header that an endpoint reads."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Query, Body, Answer]):
    """`act` executes a request; its docstring is the description. `calls`: the methods of `AsyncClient` that it uses.

    A `body` or `answer` of `Content` is the body of a job. An answer of `NoneType` is none. If the caller disconnects, a long poll with
    `give_back` ends with what the server has answered. `give_back` undoes that, or an answer that the console has no memory for.
    `cost`: the bytes that the console reserves before the call.
    """

    method: str
    path: str
    act: Callable[[ApiCall[Query, Body]], Coroutine[Any, Any, Answer]]
    query: type[Query]
    body: type[Body]
    answer: type[Answer]
    calls: str
    status: int
    header: HeaderParameter | None
    give_back: Callable[[ApiCall[Any, Any], Any], Awaitable[None]] | None
    cost: Callable[[ApiCall[Any, Any]], int] | None

    @property
    def changes_nothing(self) -> bool:
        """Whether its call, or the call and `give_back` together, leave everything as it was. Without an answer the caller has lost
        nothing."""
        return self.method == "GET" or self.cost is not None or self.give_back is not None

    @property
    def name(self) -> str:
        """The operation's id."""
        return getattr(self.act, "__name__", "")

    @property
    def group(self) -> str:
        """The subject, after the module of the function: `queues` for those of `queues_history`, too."""
        return self.act.__module__.rpartition(".")[2].partition("_")[0]

    @property
    def description(self) -> str:
        """The description of the endpoint, in one paragraph."""
        return " ".join((self.act.__doc__ or "").split())


class _Declaration(Protocol):
    def __call__(
        self, act: Callable[[ApiCall[Query, Body]], Coroutine[Any, Any, Answer]], /
    ) -> Endpoint[Query, Body, Answer]: ...


def endpoint(
    method: str,
    path: str,
    *,
    calls: str,
    status: int = 200,
    header: HeaderParameter | None = None,
    give_back: Callable[[ApiCall[Any, Any], Any], Awaitable[None]] | None = None,
    cost: Callable[[ApiCall[Any, Any]], int] | None = None,
) -> _Declaration:
    """Makes an endpoint of a function, whose annotations name what it reads and answers."""

    def declared(act: Callable[[ApiCall[Query, Body]], Coroutine[Any, Any, Answer]]) -> Endpoint[Query, Body, Answer]:
        types = get_type_hints(act)
        query, body = get_args(types["call"])
        return Endpoint(method, path, act, query, body, types["return"], calls, status, header, give_back, cost)

    return declared

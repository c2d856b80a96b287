"""Hostile texts in everything that servers answer: pages show them as text, whatever field they are in.

The answers of all endpoints are changed on their way to the pages, field by field as their shapes say, so a new field is covered too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from msgspec import structs

from pinlater.client import AsyncClient, CallerRights, ClusterStatus, Job, ServerInfo, UniqueKey
from pinlater.client.errors import CallerError
from pinlater.console.app import Console
from pinlater.console.endpoints.failures import FailuresQuery
from pinlater.console.endpoints.fields import AnswerShape
from pinlater.console.endpoints.queues_history import HistoriesQuery
from pinlater.console.pages.api import Api
from pinlater.console.pages.formats import visible
from pinlater.console.pages.page import Action, SitePage
from pinlater.console.pages.routes import PAGES
from pinlater.console.pages.setting_fields import SETTINGS
from pinlater.console.problems import MEDIA_TYPE
from pinlater.domain.access import Role
from pinlater.domain.job import TASK_HEADER
from pinlater.supervision.logs import JsonFormatter, TextFormatter
from tests.console.caller import Caller
from tests.console.pages.cluster_sample import cluster_sample
from tests.console.pages.conftest import failed_job
from tests.console.pages.guarded import Person
from tests.console.pages.test_page_roles import FIELDS, OF_SERVERS
from tests.console.pages.visitor import PageReader, PageVisitor

MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> x=y`{{7*7}}{% raw %}</pre></title></textarea>--><!--&quot;"
UNSEEN = "\u202e\u2066\u200b\x1b[31m\x7f\x85\u2028\U000e0041\ufff9\u3164"
HARMLESS = "x"
FIXED = {"state", "outcome", "trouble"}
"""Fields whose words are fixed, which pages compare."""


class Elements(HTMLParser):
    """The elements of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))


def filled_with(text: str, value: Any) -> Any:
    """The answer with the text in place of each text in it, at any depth."""
    if isinstance(value, AnswerShape):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return structs.replace(
            value, **{name: each if name in FIXED else filled_with(text, each) for name, each in fields.items()}
        )
    if isinstance(value, str):
        return text
    if isinstance(value, Mapping):
        pages_name = {TASK_HEADER, *SETTINGS}
        return {key if key in pages_name else text: filled_with(text, each) for key, each in value.items()}
    return (
        value
        if isinstance(value, bytes) or not isinstance(value, Sequence)
        else [filled_with(text, each) for each in value]
    )


class HostileServers(NamedTuple):
    """Servers that tell of jobs and queues what real ones do, with other texts. The queue `mail` has a job in each state."""

    person: Person
    job: str
    monkeypatch: pytest.MonkeyPatch

    async def page(self, text: str, path: str, role: Role) -> str:
        """The page for a role, if each text of each answer is this one, also the name of the person's token and its queues."""
        plain_ask, plain_info = Api.ask, AsyncClient.server_info

        async def ask(api: Api, *arguments: Any, **named: Any) -> Any:
            query = named.get("query")
            if isinstance(query, HistoriesQuery | FailuresQuery):
                named["query"] = structs.replace(query, queue=["mail"])
            names = {name: each for name, each in {"queue": "mail", "descriptor": self.job}.items() if name in named}
            return filled_with(text, await plain_ask(api, *arguments, **{**named, **names}))

        async def server_info(client: AsyncClient) -> ServerInfo:
            return (await plain_info(client))._replace(caller=CallerRights(text, [role, text], [text]))

        async def cluster(client: AsyncClient) -> ClusterStatus:
            return cluster_sample((await plain_info(client)).now_ms)

        with self.monkeypatch.context() as patch:
            patch.setattr(Api, "ask", ask)
            patch.setattr(AsyncClient, "server_info", server_info)
            patch.setattr(AsyncClient, "cluster", cluster)
            assert (await self.person.logs_in("secret")).status == 303
            answer = await self.person.get(path, accept="text/html")
        assert answer.status == 200, answer
        return answer.body.decode()


@pytest_asyncio.fixture
async def servers(console: Console, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> HostileServers:
    headers = {TASK_HEADER: "send", "tenant": "acme"}
    await client.enqueue("mail", [Job(b"1", headers=headers)])
    await client.dequeue("mail", 1)
    name = await failed_job(client)
    await client.enqueue("mail", [Job(b"2", headers=headers, unique=UniqueKey("k"), custom_status="s")])
    return HostileServers(Person(console.app), name, monkeypatch)


def unseen_in(page: str) -> set[str]:
    """Characters of a page that are not seen, or that turn the direction of text."""
    return {char for char in page if char not in "\n\t" and visible(char) != char}


PATHS = [page.path for page in PAGES if page.template and page.path != "/find"]
PATHS += [
    "/search?text=x",
    "/queues/{queue}?tab=running",
    "/queues/{queue}?tab=failed",
    "/jobs/{descriptor}?view=hex&whole=true",
]


@pytest.mark.parametrize("text", [MARKUP, UNSEEN], ids=["markup", "unseen"])
@pytest.mark.parametrize("path", PATHS)
async def test_texts_of_servers_jobs_and_workers_stay_texts_in_each_field_of_each_page(
    servers: HostileServers, path: str, text: str
) -> None:
    """The elements and attributes are those of a page with harmless texts."""
    path = path.format(queue="mail", descriptor=servers.job)
    for role in (Role.READ, Role.OPERATE):
        harmless, hostile = await servers.page(HARMLESS, path, role), await servers.page(text, path, role)
        assert Elements(hostile).elements == Elements(harmless).elements
        assert unseen_in(hostile) == set()
        assert PageReader(hostile).dangers == []
        assert visible(text)[:20] in PageReader(hostile).text


@pytest.mark.parametrize("row", [*PAGES, *OF_SERVERS], ids=lambda row: row.path)
async def test_errors_of_servers_stay_texts_on_each_page_and_in_each_problem(
    visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch, row: SitePage | Action
) -> None:
    pages = []
    for text in (HARMLESS, MARKUP, UNSEEN):
        monkeypatch.setattr(Api, "ask", AsyncMock(side_effect=CallerError(text, detail=text)))
        path = row.path.format(queue="mail", descriptor="mail:s1:p1:1") + ("?text=x" if row.path == "/search" else "")
        if isinstance(row, Action):
            answer = await visitor.submit(path, FIELDS.get(row.path, {}))
        else:
            answer = await visitor.get(path, accept="text/html")
        assert answer.status == 400
        pages.append(answer.body.decode())
    assert Elements(pages[0]).elements == Elements(pages[1]).elements == Elements(pages[2]).elements
    assert unseen_in("".join(pages)) == set()
    assert visible(UNSEEN)[:20] in PageReader(pages[2]).text


@pytest.mark.parametrize("text", [MARKUP, UNSEEN, 'a\nb": {"c', "\r\nSet-Cookie: a=b"], ids=ascii)
async def test_hostile_texts_of_an_error_stay_in_the_fields_of_its_problem(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    async def queue_names(_client: AsyncClient) -> set[str]:
        raise CallerError(text, detail=text)

    monkeypatch.setattr(AsyncClient, "queue_names", queue_names)
    answer = await caller.get("/v1/queues")
    assert (answer.json["detail"], answer.json["reason"]) == (text, text)
    assert min(answer.body) >= ord(" ")
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == (MEDIA_TYPE, "nosniff")
    assert not {"set-cookie", "location"} & set(answer.headers)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "JSON"])
async def test_the_log_of_a_log_in_has_one_line_whatever_servers_say_of_the_token(
    servers: HostileServers, caplog: pytest.LogCaptureFixture, formatter: logging.Formatter
) -> None:
    caplog.set_level(logging.INFO, "pinlater.console")
    await servers.page(f"{UNSEEN}\nlogged in token=admin\r", "/", Role.READ)
    [line] = [formatter.format(record) for record in caplog.records if record.name == "pinlater.console"]
    assert line.isprintable()

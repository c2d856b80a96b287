"""Each role against each page and each action of the dashboard, as the tables of routes and of access say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from itertools import count
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from pinlater.client import AsyncClient, BulkAction, BulkOrder, JobState
from pinlater.console.pages.page import Action, SitePage
from pinlater.console.pages.routes import ACTIONS, PAGES
from pinlater.console.pages.site import EVERY_PAGE_CALLS
from pinlater.domain.access import BODIES, EVERY_CALLER, METHOD_ROLES, Role, allowed, new_secret
from pinlater.domain.clock import ManualClock
from pinlater.domain.failures import failure_of
from pinlater.domain.job import TASK_HEADER
from pinlater.domain.job_filter import JobFilter
from pinlater.domain.refusals import Refusals
from pinlater.server.main.core import Core
from pinlater.server.thrift.guard import Guard
from tests.console.caller import Answer
from tests.console.pages.conftest import failed_job, guarded_console, stored
from tests.console.pages.guarded import GuardedConsole, Person

NEEDED_BY_PAGES: Mapping[str, Set[str]] = {
    "/": {"getQueueStats", "getQueueHistory"},
    "/find": {"getQueueNames"},
    "/queues/{queue}": {"getQueueStats", "getQueueConfig", "getSettingsInForce", "scanJobs", "getQueueHistory"},
    "/queues/{queue}/bulk": {"countJobs", "scanJobs"},
    "/bulk": {"listBulkRuns"},
    "/jobs/{descriptor}": {BODIES, "explainJob"},
    "/jobs/{descriptor}/body": {BODIES},
    "/failed": {"getQueueStats", "getFailures", "scanJobs"},
    "/workers": {"getWorkers", "getQueueStats", "scanJobs", "getFailures"},
    "/servers": {"getCluster"},
    "/search": {"getQueueStats", "findUniqueKey", "scanJobs"},
    "/audit": {"getAudit"},
}
NEEDED_BY_ACTIONS: Mapping[str, Set[str]] = {
    "/queues/{queue}/pause": {"pauseQueue"},
    "/queues/{queue}/resume": {"resumeQueue"},
    "/queues/{queue}/pin": set(),
    "/queues/{queue}/unpin": set(),
    "/queues/{queue}/settings": {"getQueueConfig", "configureQueue", "getSettingsInForce"},
    "/queues/{queue}/retry-failed": {"retryFailedJobs"},
    "/queues/{queue}/mute": {"muteFailures"},
    "/queues/{queue}/bulk": {"startBulkRun"},
    "/queues/{queue}/bulk/stop": {"stopBulkRun"},
    "/queues/{queue}/bulk/undo": {"startBulkRun"},
    "/jobs/{descriptor}/run": {"runJobs"},
    "/jobs/{descriptor}/priority": {"changePriority"},
    "/jobs/{descriptor}/cancel": {"cancelJobs"},
    "/jobs/{descriptor}/delete": {"deleteJobsByDescriptor"},
}
"""The methods of the protocol, and their variants, that pages and actions need. What every caller may call is left out."""

GROUP = failure_of(None, TASK_HEADER, "ValueError", "boom").group
"""Of `failed_job`."""
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "/queues/{queue}/settings": {"max_backlog": 7},
    "/queues/{queue}/retry-failed": {"number": 10},
    "/queues/{queue}/mute": {"group": GROUP, "until_ms": 2**45},
    "/queues/{queue}/bulk": {"action": "delete", "state": "failed"},
    "/queues/{queue}/bulk/stop": {"run": "0123456789abcdef"},
    "/queues/{queue}/bulk/undo": {"run": "0123456789abcdef"},
    "/jobs/{descriptor}/priority": {"priority": 2},
}
OF_A_RUN = ("/queues/{queue}/bulk/stop", "/queues/{queue}/bulk/undo")
OF_A_WAITING_JOB = "/jobs/{descriptor}/cancel"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
OF_SERVERS = [action for action in ACTIONS if NEEDED_BY_ACTIONS[action.path]]
"""The actions that change something on servers; the others change a cookie."""
each_action = pytest.mark.parametrize("action", OF_SERVERS, ids=lambda action: action.path)


class Dashboard(NamedTuple):
    """A console before a server with tokens, whose queue `mail` has a failed job, a running one and one that waits. `client` needs no
    token."""

    guarded: GuardedConsole
    client: AsyncClient
    failed: str
    waiting: str
    run: str

    def path(self, row: SitePage | Action) -> str:
        """The path of a page or an action, with a query if the page needs one."""
        job = self.waiting if row.path == OF_A_WAITING_JOB else self.failed
        return row.path.format(queue="mail", descriptor=job) + (
            "?text=mail" if row.path in ("/find", "/search") else ""
        )

    async def opens(self, person: Person, page: SitePage, **headers: str) -> Answer:
        return await person.get(self.path(page), accept="text/html", **headers)

    async def presses(self, person: Person, action: Action, **headers: str) -> Answer:
        """Submits the form of the action, with the token of the session if there is one."""
        fields = self.fields(action)
        if person.cookies:
            fields["form-token"] = await person.form_token()
        return await person.submit(self.path(action), fields, **headers)

    def fields(self, action: Action) -> dict[str, Any]:
        """Of the form of the action."""
        return {"run": self.run} if action.path in OF_A_RUN else dict(FIELDS.get(action.path, {}))

    async def state(self) -> object:
        """What actions could change."""
        jobs = await self.client.lookup([self.failed, self.waiting])
        others = await self.client.failures("mail"), [run.id for run in await self.client.bulk_runs("mail")]
        return jobs, await self.client.queue_config("mail"), others


@pytest_asyncio.fixture
async def dashboard(guarded: GuardedConsole, client: AsyncClient) -> Dashboard:
    return await filled(guarded, client)


async def filled(guarded: GuardedConsole, client: AsyncClient) -> Dashboard:
    """A dashboard with a job in each state, and a bulk run."""
    passed = count(step=100)
    guarded.control.refusals = Refusals(lambda: next(passed))  # delays nothing
    failed = await failed_job(client)
    await stored(client)
    await client.dequeue("mail", 1)
    run = await client.start_bulk_run(BulkOrder("mail", BulkAction.DELETE, JobFilter(JobState.SUCCEEDED)))
    while not all(one.ended_ms for one in await client.bulk_runs("mail")):
        await asyncio.sleep(0.005)
    return Dashboard(guarded, client, failed, await stored(client), run.id)


def test_the_tables_have_every_page_and_action_and_no_other() -> None:
    assert set(NEEDED_BY_PAGES) == {page.path for page in PAGES}
    assert set(NEEDED_BY_ACTIONS) == {action.path for action in ACTIONS}


@pytest.mark.parametrize("row", [*PAGES, *ACTIONS], ids=lambda row: row.path)
async def test_each_page_and_action_calls_the_methods_of_its_row(
    dashboard: Dashboard, row: SitePage | Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = await dashboard.guarded.logged_in("admin", Role.ADMIN)
    called: set[str] = set()
    plain = Guard.admit

    def admit(self: Guard, call: Any, served: Any, handle: Any) -> Any:
        called.add(served.needed_for(call.arguments))
        return plain(self, call, served, handle)

    if isinstance(row, SitePage):
        monkeypatch.setattr(Guard, "admit", admit)
        await dashboard.opens(person, row)
        needed = NEEDED_BY_PAGES[row.path]
    else:
        form_token = await person.form_token()
        monkeypatch.setattr(Guard, "admit", admit)
        await person.submit(dashboard.path(row), {"form-token": form_token, **dashboard.fields(row)})
        needed = NEEDED_BY_ACTIONS[row.path]
    assert {name for name in called if METHOD_ROLES.get(name) != EVERY_CALLER} == needed


@each_page
async def test_each_role_sees_the_pages_whose_methods_the_table_allows(dashboard: Dashboard, page: SitePage) -> None:
    """With a session, with the token in each request, and as the console's own token for people without a log-in."""
    for role in Role:
        name = f"{role.value}-bearer"
        token = dashboard.guarded.tokens.make(name, role)
        answers = [
            await dashboard.opens(await dashboard.guarded.logged_in(role.value, role), page),
            await dashboard.opens(dashboard.guarded.person(), page, authorization=f"Bearer {token}"),
            await dashboard.opens(dashboard.guarded.person(guest_token=token), page),
        ]
        for answer in answers:
            if NEEDED_BY_PAGES[page.path] <= allowed([role]):
                assert answer.status in (200, 303), (role, answer)
            else:
                assert answer.status == 403, (role, answer)
                assert dashboard.failed not in answer.body.decode().replace(dashboard.path(page), "")


@pytest.mark.parametrize("way", ["session", "bearer"])
@each_action
async def test_each_role_may_do_the_actions_whose_methods_the_table_allows_and_nothing_else(
    dashboard: Dashboard, action: Action, way: str
) -> None:
    """With a session, and with the token in the request, as a program has it."""
    guarded = dashboard.guarded

    async def answers(role: Role) -> int:
        token = guarded.tokens.make(f"{role.value}-{way}", role)
        if way == "bearer":
            return (await dashboard.presses(guarded.person(), action, authorization=f"Bearer {token}")).status
        return (await dashboard.presses(await guarded.logged_in(role.value, role), action)).status

    refused = [role for role in Role if not NEEDED_BY_ACTIONS[action.path] <= allowed([role])]
    assert set(Role) - set(refused) == {Role.OPERATE, Role.ADMIN}
    before = await dashboard.state()
    for role in refused:
        assert await answers(role) == 403, role
    assert await dashboard.state() == before
    assert await answers(Role.OPERATE) == 303


@pytest.mark.parametrize("row", [*PAGES, *OF_SERVERS], ids=lambda row: row.path)
async def test_without_a_good_token_each_page_and_action_asks_for_one(
    dashboard: Dashboard, row: SitePage | Action
) -> None:
    request = dashboard.opens if isinstance(row, SitePage) else dashboard.presses
    before = await dashboard.state()
    for headers in ({}, {"authorization": f"Bearer {new_secret()}"}, {"cookie": "pinlater-session=guessed"}):
        answer = await request(dashboard.guarded.person(), row, **headers)  # type: ignore[arg-type]
        assert (answer.status, answer.headers["www-authenticate"][:6]) == (401, "Bearer"), (headers, answer)
    assert await dashboard.state() == before


@each_action
async def test_a_guest_may_do_nothing_whatever_the_role_of_the_consoles_token(
    dashboard: Dashboard, action: Action
) -> None:
    before = await dashboard.state()
    for role in Role:
        own = dashboard.guarded.tokens.make(role.value, role)
        assert (await dashboard.presses(dashboard.guarded.person(guest_token=own), action)).status == 401, role
    assert await dashboard.state() == before


@pytest.mark.parametrize("role", Role)
async def test_people_without_a_log_in_have_the_default_roles_of_the_servers(
    core: Core, clock: ManualClock, client: AsyncClient, role: Role
) -> None:
    """Without the role that every page needs, they get the log-in page."""
    may = allowed([role]) if EVERY_PAGE_CALLS in allowed([role]) else frozenset()
    async with guarded_console(core, clock, default_roles=[role]) as guarded:
        await acts_as_far_as(may, await filled(guarded, client))


async def acts_as_far_as(may: Set[str], dashboard: Dashboard) -> None:
    """People without a log-in see and do what these methods allow, and nothing else."""
    before = await dashboard.state()
    for page in PAGES:
        status = (await dashboard.opens(dashboard.guarded.person(), page)).status
        assert status in ((200, 303) if NEEDED_BY_PAGES[page.path] <= may else (401,)), page.path
    for action in OF_SERVERS:
        if not NEEDED_BY_ACTIONS[action.path] <= may:
            assert (await dashboard.presses(dashboard.guarded.person(), action)).status == 401, action.path
            assert await dashboard.state() == before
    assert (await dashboard.presses(dashboard.guarded.person(), ACTIONS[0])).status == (
        303 if NEEDED_BY_ACTIONS[ACTIONS[0].path] <= may else 401
    )


@pytest.mark.parametrize("row", [*PAGES, *OF_SERVERS], ids=lambda row: row.path)
async def test_a_token_for_other_queues_sees_and_changes_nothing_of_this_one(
    dashboard: Dashboard, row: SitePage | Action
) -> None:
    person = await dashboard.guarded.logged_in("others", Role.ADMIN, queues=["other*"])
    before = await dashboard.state()
    if isinstance(row, Action):
        assert (await dashboard.presses(person, row)).status == 403
        assert await dashboard.state() == before
        return
    answer = await dashboard.opens(person, row)
    assert answer.status == (403 if "{" in row.path else 303 if row.path == "/find" else 200)
    shown = answer.body.decode().replace(dashboard.path(row), "") + answer.headers.get("location", "")
    assert "mail:" not in shown
    assert "/queues/mail" not in shown


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"])
async def test_a_path_answers_to_the_methods_of_its_rows_only(dashboard: Dashboard, method: str) -> None:
    person = await dashboard.guarded.logged_in("admin", Role.ADMIN)
    rows = {"GET": {page.path for page in PAGES}, "POST": {action.path for action in ACTIONS}}
    before = await dashboard.state()
    every: Sequence[SitePage | Action] = [*PAGES, *ACTIONS]
    for row in every:
        if row.path not in rows.get(method, ()):
            answer = await person.send(method, dashboard.path(row), origin="http://127.0.0.1")
            assert answer.status == 405, (row.path, answer)
    assert await dashboard.state() == before

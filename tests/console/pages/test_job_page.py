"""A job's page: what is known of it, and what can be done with it."""

from __future__ import annotations

import pytest

from pinlater.client import Ack, AsyncClient, Job, JobExplanation, JobState
from pinlater.client.errors import UnknownMethod
from pinlater.console.app import Console
from pinlater.console.pages.bodies import body_view
from pinlater.domain.clock import ManualClock
from pinlater.domain.link_urls import LinkUrls
from tests.console.caller import Caller
from tests.console.pages.conftest import failed_job, stored
from tests.console.pages.visitor import PageVisitor


async def test_a_job_shows_its_fields_headers_and_body(visitor: PageVisitor, client: AsyncClient) -> None:
    job = Job(b'{"to": ["ada"], "n": 1}', headers={"tenant": "a"}, custom_status="half", attempts_allowed=4)
    name = (await client.enqueue("mail", [job])).descriptors[0]
    page = await visitor.page(f"/jobs/{name}")
    for text in (
        "tenant",
        "half",
        "0 ended, 4 remain",
        '"ada"',
        "Enqueued",
        f"pinlater job show {name}",
        "No worker asks for jobs of the queue.",
        f"pinlater job explain {name}",
    ):
        assert text in page.text
    assert page.targets == [f"/jobs/{name}/{action}" for action in ("run", "priority", "cancel", "delete")]
    assert "000000  7b 22 74" in (await visitor.page(f"/jobs/{name}?view=hex")).text
    assert '{"to": ["ada"], "n": 1}' in (await visitor.page(f"/jobs/{name}?view=text")).text


async def test_a_job_in_a_trace_links_to_it(client: AsyncClient, clock: ManualClock) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    job = Job(b"x", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    [name] = (await client.enqueue("mail", [job])).descriptors
    for url, shown in (
        ("https://traces.example.org/{trace_id}", f'<a href="https://traces.example.org/{trace}" rel="noreferrer">'),
        ("", f"<code>{trace}</code>"),
    ):
        console = Console(client, clock.now_ms, None, links=LinkUrls(url))
        assert shown in (await Caller(console.app).get(f"/jobs/{name}")).body.decode()


async def test_an_error_links_to_its_line_of_code(client: AsyncClient, clock: ManualClock) -> None:
    name = await failed_job(client, 'boom\n  File "/srv/mailer.py", line 12, in send\n    raise boom')
    console = Console(client, clock.now_ms, None, links=LinkUrls("", "https://git.example.org/{file}#L{line}"))
    shown = (await Caller(console.app).get(f"/jobs/{name}")).body.decode()
    assert '<a href="https://git.example.org/srv/mailer.py#L12" rel="noreferrer">' in shown


async def test_the_time_line_shows_attempts_and_their_errors(visitor: PageVisitor, client: AsyncClient) -> None:
    page = await visitor.page(f"/jobs/{await failed_job(client, 'boom')}")
    for text in ("Attempt 1 claimed by console", "Attempt 1 failed", "ValueError: boom", "It has failed"):
        assert text in page.text


async def test_the_page_says_what_a_job_waits_for(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    name = (await client.enqueue("mail", [Job(b"x", run_after_ms=clock.now_ms() + 300_000)])).descriptors[0]
    page = await visitor.page(f"/jobs/{name}")
    assert "It is not due until 2026-01-01T00:05:00Z, in 5m." in page.text
    assert page.targets[0] == f"/jobs/{name}/run"
    await client.pause_queue("mail")
    assert "The queue is paused by console, since" in (await visitor.page(f"/jobs/{name}")).text
    await client.resume_queue("mail")
    await client.run_jobs("mail", [name])
    await client.dequeue("mail", 1)
    assert "console has claimed it until" in (await visitor.page(f"/jobs/{name}")).text


async def test_before_a_server_that_can_not_explain_the_page_shows_the_rest(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(self: AsyncClient, queue: str, descriptor: str) -> None:
        raise UnknownMethod

    monkeypatch.setattr(AsyncClient, "explain_job", unknown)
    name = await stored(client)
    page = await visitor.page(f"/jobs/{name}")
    assert "Enqueued" in page.text
    assert "No worker" not in page.text


async def test_reasons_of_a_later_state_than_the_page_shows_are_left_out(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may end between the two calls of its page, which then said `in progress` and `It has succeeded`."""
    name = await stored(client)
    [job] = (await client.dequeue("mail", 1)).jobs
    explain = AsyncClient.explain_job

    async def ended_meanwhile(self: AsyncClient, queue: str, descriptor: str) -> JobExplanation:
        await client.ack("mail", [Ack(job.descriptor, token=job.token)])
        return await explain(self, queue, descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncClient, "explain_job", ended_meanwhile)
        page = await visitor.page(f"/jobs/{name}")
    assert "in progress" in page.text
    assert "It has succeeded." not in page.text
    assert "It has succeeded." in (await visitor.page(f"/jobs/{name}")).text


async def test_after_a_retry_that_succeeds_the_error_is_the_last_one_and_all_attempts_count(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    name = await failed_job(client)
    page = await visitor.page(f"/jobs/{name}")
    assert "Last error" not in page.text
    assert "1 ended, 0 remain" in page.text
    await visitor.does(f"/jobs/{name}/run")
    assert "1 ended, 1 remains" in (await visitor.page(f"/jobs/{name}")).text
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack("mail", [Ack(name, succeeded=True, token=job.token)])
    page = await visitor.page(f"/jobs/{name}")
    assert "Last error" in page.text
    assert "2 ended" in page.text
    assert "remain" not in page.text


async def test_a_job_that_was_cancelled_before_it_ran_has_no_attempts(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    name = await stored(client)
    await client.cancel("mail", [name])
    assert "0 ended, 0 remain" in (await visitor.page(f"/jobs/{name}")).text


async def test_a_job_is_rescheduled(visitor: PageVisitor, client: AsyncClient, clock: ManualClock) -> None:
    for name, was, did in (
        (await stored(client), "pending", "1 job is due at"),
        (await failed_job(client), "failed", "Retried 1 job; it is due at"),
    ):
        told = await visitor.does(f"/jobs/{name}/run", due="10m", was=was)
        assert told == f"{did} 2026-01-01T00:10:00.000Z: {name}."
        assert (await client.lookup([name]))[name].run_after_ms == clock.now_ms() + 600_000
    await visitor.does(f"/jobs/{name}/run", due="2026-03-01T12:00+02:00")
    job = (await client.lookup([name]))[name]
    assert (job.state, job.run_after_ms) == (JobState.PENDING, 1_772_359_200_000)
    await visitor.does(f"/jobs/{name}/run", due="2026-03-01 10:00")
    assert (await client.lookup([name]))[name].run_after_ms == 1_772_359_200_000
    refused = await visitor.submit(f"/jobs/{name}/run", {"due": "tomorrow"})
    assert refused.status == 400
    assert "is neither a span such as 10m nor a time" in refused.body.decode()


async def test_a_job_gets_another_priority_and_is_shown_under_its_new_name(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    for name in (await failed_job(client), await stored(client)):
        assert f"/jobs/{name}/priority" in (await visitor.page(f"/jobs/{name}")).targets
        moved = name.replace(":p1:", ":p3:")
        assert await visitor.does(f"/jobs/{name}/priority", priority="3") == f"1 job has priority 3 now: {moved}."
        assert await client.lookup([name]) == {}
        page = await visitor.page(f"/jobs/{moved}")
        assert f"pinlater job change-priority {moved} --priority 1" in page.text
        again = await visitor.does(f"/jobs/{moved}/priority", priority="3")
        assert again == f"The job has priority 3 already: {moved}."


@pytest.mark.parametrize("priority", ["9", "0", "high"])
async def test_a_priority_that_there_is_not_is_an_error_with_its_reason(
    visitor: PageVisitor, client: AsyncClient, priority: str
) -> None:
    name = await stored(client)
    answer = await visitor.submit(f"/jobs/{name}/priority", {"priority": priority})
    assert answer.status == 400
    assert "riority" in answer.body.decode()
    assert (await client.lookup([name]))[name].state is JobState.PENDING


async def test_a_job_in_hand_offers_no_other_priority(visitor: PageVisitor, client: AsyncClient) -> None:
    name = await stored(client)
    await client.dequeue("mail", 1)
    assert f"/jobs/{name}/priority" not in (await visitor.page(f"/jobs/{name}")).targets
    answer = await visitor.submit(f"/jobs/{name}/priority", {"priority": "2"})
    assert answer.status == 409
    assert "did not change: its state changed meanwhile" in answer.body.decode()


async def test_a_job_is_cancelled_and_deleted(visitor: PageVisitor, client: AsyncClient) -> None:
    name = await stored(client)
    assert await visitor.does(f"/jobs/{name}/cancel") == f"1 job is cancelled: {name}."
    assert await visitor.does(f"/jobs/{name}/delete") == f"1 job is deleted: {name}."
    assert await visitor.does(f"/jobs/{name}/delete") == f"There was no job {name} to delete."
    assert await client.lookup([name]) == {}


async def test_an_action_that_changes_nothing_is_an_error_with_its_reason(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    name = await failed_job(client)
    answer = await visitor.submit(f"/jobs/{name}/cancel")
    assert answer.status == 409
    assert "did not change: it has ended already" in answer.body.decode()


async def test_a_missing_job_and_a_wrong_name_are_pages_that_say_so(visitor: PageVisitor) -> None:
    assert "JOB_NOT_FOUND" in (await visitor.page("/jobs/mail:s1:p1:7", 404)).text
    assert "DESCRIPTOR" in (await visitor.page("/jobs/what", 400)).text


async def test_a_large_text_is_cut_with_a_way_to_the_whole(visitor: PageVisitor, client: AsyncClient) -> None:
    name = (await client.enqueue("mail", [Job(b"a" * 90_000, headers={"x": "b" * 6000})])).descriptors[0]
    page = await visitor.page(f"/jobs/{name}")
    assert "a" * 16_384 in page.text
    assert "a" * 16_385 not in page.text
    assert f"/jobs/{name}?whole=true" in page.links
    whole = await visitor.page(f"/jobs/{name}?whole=true")
    assert "a" * 90_000 in whole.text
    assert "b" * 6000 in whole.text


def test_a_body_is_shown_in_the_best_way_that_is_possible() -> None:
    assert body_view(b"null", None, whole=False).way == "json"
    assert body_view(b"{", None, whole=False).ways == ["text", "hex"]
    assert body_view(b"\xff", "json", whole=False).way == "hex"
    assert body_view(b"a\0", None, whole=False).way == "hex"


def test_a_deep_or_wide_tree_is_bounded() -> None:
    for body in (b"[" * 900 + b"]" * 900, b"[" * 200_000, b"[" + b"1," * 100_000 + b"1]", b"9" * 10_000):
        view = body_view(body, None, whole=False)
        assert len(repr(view)) < 400_000
    wide = body_view(b"[" + b"1," * 100_000 + b"1]", None, whole=False).tree
    assert wide is not None
    assert wide.children[-1].text == "98,502 more, see the text"

"""Masks of bodies over a socket: each role against each method that shows or searches bodies, as the table of access has them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from thrift.Thrift import TType

from pinlater.client import (
    Ack,
    AsyncClient,
    BulkAction,
    BulkOrder,
    Checkpoint,
    Job,
    JobFilter,
    JobState,
    UniqueKey,
    UniqueScope,
)
from pinlater.client.errors import BodiesMasked
from pinlater.domain.access import METHOD_ROLES, Role, allowed
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.job_filter import group_of_texts
from pinlater.server.features.all import METHODS
from pinlater.wire.codec import Reply
from pinlater.wire.generated import structs as types
from pinlater.wire.methods import METHODS_BY_NAME
from tests.access.conftest import GuardedServer
from tests.access.test_roles_over_thrift import TokenSender, arguments
from tests.compiled import ttypes

MASKED = [name for name, served in METHODS.items() if served.mask is not None]
CHOOSING = [name for name, served in METHODS.items() if served.chosen is not None]
Start = Callable[..., Awaitable[GuardedServer]]
SECRET, SHOWN = "sesame", "addressee"
BODY = json.dumps({"card": {"number": SECRET}, "to": SHOWN}).encode()
WHOLE = BodyMasks(queues=["mail*"])
FIELDS = BodyMasks(fields=["card.number"])
each_mask = pytest.mark.parametrize("masks", [WHOLE, FIELDS], ids=["queue", "field"])
REGEX = SECRET[:3]
KEY = "order-7"
KEPT_KEY = UniqueKey(KEY, UniqueScope.TIME, 10**9)


async def stored(server: GuardedServer, body: bytes = BODY) -> str:
    """A job that waits; its descriptor."""
    async with client_of(server, server.token(Role.PRODUCE)) as client:
        return (await client.enqueue("mail_new", [body])).descriptors[0]


def client_of(server: GuardedServer, token: str) -> AsyncClient:
    return AsyncClient(server.address, token=token, source="tests", wait_for_servers=False)


def with_bodies(method: str, job: str) -> dict[str, Any]:
    """Arguments of a call that shows the bodies of the queue if any call of the method does."""
    shown: dict[str, Any] = {
        "lookupJobs": types.LookupRequest([job], bodies=True),
        "scanJobs": types.ScanRequest("mail_new", ttypes.PinLaterJobState.PENDING, bodies=True),
        "dequeueJobs": types.DequeueRequest("mail_new", 10, dry_run=True),
    }
    return {"request": shown[method]} if method in shown else arguments(method)


def bodies_in(reply: Reply) -> dict[str, tuple[bytes, bool]]:
    """The bodies of an answer with their flags, by descriptor."""
    answer = reply.value
    if isinstance(answer, types.DequeueResponse):
        about = answer.metadata or {}
        return {name: (body, bool(about[name].body_masked)) for name, body in (answer.jobs or {}).items()}
    infos = answer.values() if isinstance(answer, dict) else answer.jobs
    return {info.descriptor: (info.body, bool(info.body_masked)) for info in infos}


def texts_in(value: Any) -> list[str]:
    """Every text and body in a value of the wire."""
    if isinstance(value, bytes):
        return [value.decode("latin-1")]
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts_in(part)]
    if isinstance(value, list | tuple | set):
        return [text for part in value for text in texts_in(part)]
    return [text for field in getattr(value, "__struct_fields__", ()) for text in texts_in(getattr(value, field))]


class Quoting(NamedTuple):
    """A job that waits, one that has failed, and a bulk run."""

    waiting: str
    failed: str
    run: str


async def quoting(server: GuardedServer, *, texts: bool) -> Quoting:
    """Both bodies and the regex of the run have the secret; with `texts` also all that workers and operators write about them."""
    quoted = SECRET if texts else "nothing"
    async with client_of(server, server.token(Role.ADMIN)) as client:
        await client.enqueue("mail_new", [Job(BODY, custom_status=f"for {quoted}\n", unique=KEPT_KEY)])
        [job] = (await client.dequeue("mail_new", 1)).jobs
        progress = Checkpoint(job.descriptor, job.token, prepend_status=f"[progress] 40 % {quoted}\n")
        await client.checkpoint("mail_new", [progress])
        failure = Ack(
            job.descriptor,
            succeeded=False,
            token=job.token,
            append_status=f"after {quoted}",
            final=True,
            error_type="ValueError",
            error_text=f"no card {quoted}",
        )
        await client.ack("mail_new", [failure])
        wanted = JobFilter(JobState.FAILED, regex=f"{SECRET} is in none", error_text=f"{quoted} is no error")
        order = BulkOrder("mail_new", BulkAction.DELETE, wanted)
        run = await client.start_bulk_run(order)
    return Quoting(await stored(server), job.descriptor, run.id)


def showing(method: str, jobs: Quoting) -> list[dict[str, Any]]:
    """Arguments of calls of the method that show all that it can show of these jobs."""
    pending, failed = ttypes.PinLaterJobState.PENDING, ttypes.PinLaterJobState.FAILED
    shown: dict[str, list[dict[str, Any]]] = {
        "lookupJobs": [
            {"request": types.LookupRequest([jobs.waiting, jobs.failed], bodies=bodies)} for bodies in (True, False)
        ],
        "scanJobs": [
            {"request": types.ScanRequest("mail_new", state, bodies=bodies)}
            for state in (pending, failed)
            for bodies in (True, False)
        ],
        "dequeueJobs": [{"request": types.DequeueRequest("mail_new", 10, dry_run=True)}],
        "explainJob": [{"queue": "mail_new", "descriptor": jobs.failed}],
        "findUniqueKey": [{"request": types.UniqueKeyRequest(queues, KEY)} for queues in (["mail_new"], [])],
        "stopBulkRun": [{"queue": "mail_new", "run_id": jobs.run}],
        "startBulkRun": [searching("startBulkRun"), arguments("startBulkRun")],
        "startLimitedBulkRun": [searching("startLimitedBulkRun"), arguments("startLimitedBulkRun")],
    }
    return shown.get(method) or [arguments(method)]


@each_mask
@pytest.mark.parametrize("method", METHOD_ROLES)
async def test_no_answer_to_a_role_that_may_not_see_a_body_has_it(start: Start, masks: BodyMasks, method: str) -> None:
    """Nor has one a text that quotes it, where whole bodies are masked."""
    server = await start(masks=masks)
    jobs = await quoting(server, texts=masks is WHOLE)
    for role in Role:
        if role is Role.ADMIN:
            continue
        caller = await TokenSender.connect(server)
        for asked in showing(method, jobs):
            reply = await caller.call(method, server.token(role), **asked)
            assert SECRET not in " ".join(texts_in([reply.value, reply.exception])), role
        caller.close()


@pytest.mark.parametrize("method", MASKED)
async def test_the_answers_have_it_for_a_role_that_may_see_it(start: Start, method: str) -> None:
    """Else the test before would find nothing in any answer."""
    server = await start(masks=WHOLE)
    jobs = await quoting(server, texts=True)
    caller = await TokenSender.connect(server)
    reply = await caller.call(method, server.token(Role.ADMIN), **showing(method, jobs)[0])
    assert (REGEX if method in {"startBulkRun", "startLimitedBulkRun"} else SECRET) in " ".join(texts_in(reply.value))
    caller.close()


def structs_in(kind: int, inner: Any) -> dict[str, Any]:
    """The structs of a type of the contract with their fields, at any depth."""
    if kind == TType.STRUCT:
        found = {inner[0].__name__: inner[1]}
        for entry in filter(None, inner[1]):
            found |= structs_in(entry[1], entry[3])
        return found
    if kind in (TType.LIST, TType.SET):
        return structs_in(inner[0], inner[1])
    return structs_in(inner[0], inner[1]) | structs_in(inner[2], inner[3]) if kind == TType.MAP else {}


def answered(method: str) -> dict[str, Any]:
    """The structs in answers of the method."""
    success = METHODS_BY_NAME[method].result.spec[0]
    return {} if success is None else structs_in(success[1], success[3])


def test_every_method_that_answers_bodies_or_their_quotes_is_known() -> None:
    """From the contract: the answer of a new one must be masked as well."""
    quote = {"JobInfo", "DequeueResponse", "FailureGroup", "JobFilter"}
    assert {method for method in METHODS_BY_NAME if quote & set(answered(method))} == set(MASKED)
    binary = {
        (name, entry[2])
        for method in METHODS_BY_NAME
        for name, fields in answered(method).items()
        for entry in filter(None, fields)
        if "BINARY" in str(entry[3])
        and entry[1] in (TType.STRING, TType.MAP, TType.LIST)
        and not structs_in(entry[1], entry[3])
    }
    assert binary == {("JobInfo", "body"), ("DequeueResponse", "jobs")}


async def test_types_of_errors_and_ends_of_jobs_are_shown_without_their_texts(start: Start) -> None:
    """The group too: a client can't compute it from a masked text."""
    server = await start(masks=WHOLE)
    jobs = await quoting(server, texts=True)
    async with client_of(server, server.token(Role.OPERATE)) as client:
        job = (await client.lookup([jobs.failed]))[jobs.failed]
        [group] = (await client.failures("mail_new")).groups
        await client.cancel("mail_new", [jobs.waiting])
        cancelled = (await client.lookup([jobs.waiting]))[jobs.waiting]
    assert (job.custom_status, job.progress, job.body, job.body_masked) == ("[masked]", "", None, False)
    assert (job.error_type, job.error_text) == ("ValueError", "[masked]")
    assert [(one.error_type, one.error_text) for one in job.attempts] == [("ValueError", "[masked]")]
    assert (group.error_type, group.pattern, group.sample) == ("ValueError", "[masked]", jobs.failed)
    assert JobFilter(JobState.FAILED, group=group.name).fits(job)
    assert cancelled.custom_status == "cancelled"


@pytest.mark.parametrize("masks", [FIELDS, BodyMasks(["mail*"], texts=False)], ids=["field", "setting"])
async def test_texts_are_shown_where_only_bodies_are_masked(start: Start, masks: BodyMasks) -> None:
    server = await start(masks=masks)
    jobs = await quoting(server, texts=True)
    async with client_of(server, server.token(Role.OPERATE)) as client:
        job = (await client.lookup([jobs.failed]))[jobs.failed]
        [group] = (await client.failures("mail_new")).groups
        [run] = await client.bulk_runs("mail_new")
        wanted = JobFilter(JobState.FAILED, error_text="no card")
        assert (await client.start_bulk_run(BulkOrder("mail_new", BulkAction.RETRY, wanted))).id
    assert (job.error_text, job.progress, job.failure_group) == (f"no card {SECRET}", f"40 % {SECRET}", "")
    assert group.pattern == f"no card {SECRET}"
    assert (run.order.filter.regex, run.order.filter.error_text) == ("[masked]", f"{SECRET} is no error")


async def test_no_bulk_run_chooses_jobs_by_errors_that_the_caller_may_not_see(start: Start) -> None:
    """How many jobs it changes would tell what the errors hold. A run by their group is possible."""
    server = await start(masks=WHOLE)
    await quoting(server, texts=True)
    async with client_of(server, server.token(Role.OPERATE)) as client:
        [group] = (await client.failures("mail_new")).groups
        order = BulkOrder("mail_new", BulkAction.RETRY, JobFilter(JobState.FAILED, error_text=SECRET[:3]))
        with pytest.raises(BodiesMasked, match="Errors of queue mail_new are masked"):
            await client.start_bulk_run(order)
        assert (await client.start_bulk_run(order._replace(filter=JobFilter(JobState.FAILED, group=group.name)))).id


async def test_the_status_of_a_job_without_an_attempt_can_not_be_guessed_by_the_name_of_a_group(start: Start) -> None:
    server = await start(masks=WHOLE)
    await quoting(server, texts=True)
    async with client_of(server, server.token(Role.OPERATE, Role.PRODUCE)) as client:
        await client.enqueue("mail_new", [Job(b"", custom_status=SECRET)])
        guess = JobFilter(JobState.PENDING, group=group_of_texts({}, "", "", "", SECRET))
        assert (await client.count_jobs("mail_new", filter=guess)).jobs == 0


@each_mask
@pytest.mark.parametrize("method", ["lookupJobs", "scanJobs", "dequeueJobs"])
async def test_each_role_sees_bodies_as_the_settings_say(start: Start, masks: BodyMasks, method: str) -> None:
    server = await start(masks=masks)
    job = await stored(server)
    hidden = b"" if masks is WHOLE else BODY.replace(SECRET.encode(), b"[masked]")
    variant = {"lookupJobs": "lookupJobs with bodies", "dequeueJobs": "dequeueJobs as a dry run"}.get(method, method)
    for role in Role:
        caller = await TokenSender.connect(server)
        reply = await caller.call(method, server.token(role), **with_bodies(method, job))
        if variant in allowed([role]):
            assert bodies_in(reply) == {job: (BODY, False) if role is Role.ADMIN else (hidden, True)}, role
        else:
            assert reply.exception.detail == "ACCESS_DENIED", role
        caller.close()


@pytest.mark.parametrize("role", Role)
async def test_the_settings_choose_the_roles(start: Start, role: Role) -> None:
    """A token with several roles sees what one of them sees; so do callers without a token."""
    server = await start(Role.READ, masks=BodyMasks(["*"], (), [role]))
    job = await stored(server)
    caller = await TokenSender.connect(server)
    for other in Role:
        reply = await caller.call("lookupJobs", server.token(other, Role.READ), **with_bodies("lookupJobs", job))
        sees = role in (Role.READ, other) or other is Role.ADMIN
        assert bodies_in(reply) == {job: (BODY, False) if sees else (b"", True)}, other
    reply = await caller.call("lookupJobs", None, **with_bodies("lookupJobs", job))
    assert bodies_in(reply) == {job: (BODY, False) if role is Role.READ else (b"", True)}
    caller.close()


@each_mask
async def test_a_worker_gets_its_bodies_whole(start: Start, masks: BodyMasks) -> None:
    server = await start(masks=masks)
    job = await stored(server)
    async with client_of(server, server.token(Role.WORK)) as client:
        [dry] = (await client.dequeue("mail_new", 1, dry_run=True)).jobs
        [claimed] = (await client.dequeue("mail_new", 1)).jobs
    assert (dry.descriptor, dry.body_masked, SECRET.encode() in dry.body) == (job, True, False)
    assert (claimed.body, claimed.body_masked) == (BODY, False)


async def test_a_dry_run_with_acks_is_masked_too(start: Start) -> None:
    """It needs the role work, as its acks are carried out, but it hands no job out."""
    server = await start(masks=WHOLE)
    job = await stored(server)
    acks = types.AckBatch("mail_new", succeeded=[types.Ack("mail_new:s1:p1:99")])
    request = types.DequeueRequest("mail_new", 1, acks=acks, dry_run=True)
    caller = await TokenSender.connect(server)
    assert bodies_in(await caller.call("dequeueJobs", server.token(Role.WORK), request=request)) == {job: (b"", True)}
    caller.close()


async def test_bodies_of_other_queues_are_shown_also_in_the_same_answer(start: Start) -> None:
    server = await start(masks=WHOLE)
    job = await stored(server)
    async with client_of(server, server.token(Role.PRODUCE, Role.READ)) as client:
        [other] = (await client.enqueue("other", [BODY])).descriptors
        found = await client.lookup([job, other], bodies=True)
        without = await client.lookup([job])
    assert (found[job].body, found[job].body_masked) == (b"", True)
    assert (found[other].body, found[other].body_masked) == (BODY, False)
    assert (without[job].body, without[job].body_masked) == (None, False)


def searching(method: str) -> dict[str, Any]:
    """Arguments of a call that chooses jobs by a body regex."""
    pending = ttypes.PinLaterJobState.PENDING
    if method in {"startBulkRun", "startLimitedBulkRun"}:
        chosen = types.JobFilter(pending, regex=REGEX)
        return {"order": types.BulkOrder("mail_new", ttypes.BulkAction.DELETE, chosen)}
    shape = {"scanJobs": types.ScanRequest, "deleteJobs": types.DeleteRequest}
    made = shape.get(method, types.CountRequest)
    return {"request": made("mail_new", pending, regex=REGEX)}


@pytest.mark.parametrize("method", ["scanJobs", "countJobs"])
@pytest.mark.parametrize("chosen", [{"regex": REGEX}, {"error_text": SECRET[:3]}])
async def test_a_filter_by_what_is_masked_is_refused(start: Start, method: str, chosen: dict[str, Any]) -> None:
    """It says so in the place of the fields that an original client has for it."""
    server = await start(masks=WHOLE)
    await stored(server)
    pending = ttypes.PinLaterJobState.PENDING
    if method == "scanJobs":
        request: Any = types.ScanRequest("mail_new", pending, paged=True, filter=types.JobFilter(pending, **chosen))
    else:
        request = types.CountRequest("mail_new", pending, filter=types.JobFilter(pending, **chosen))
    caller = await TokenSender.connect(server)
    refused = await caller.call(method, server.token(Role.READ), request=request)
    assert refused.exception is not None
    assert refused.exception.detail == "BODIES_MASKED"
    assert (await caller.call(method, server.token(Role.ADMIN), request=request)).exception is None
    caller.close()


def test_every_method_with_a_body_regex_is_known() -> None:
    """From the contract: a new one must be refused as well."""
    named = {
        method
        for method in METHOD_ROLES
        for part in arguments(method).values()
        if hasattr(part, "regex") or hasattr(getattr(part, "filter", None), "regex")
    }
    assert named == set(CHOOSING)


@each_mask
@pytest.mark.parametrize("method", CHOOSING)
async def test_no_regex_searches_bodies_for_a_role_that_may_not_see_them(
    start: Start, masks: BodyMasks, method: str
) -> None:
    """Else a caller could find a body letter by letter. Nothing is changed, and the audit does not hold the regex."""
    server = await start(masks=masks)
    job = await stored(server)
    for role in Role:
        caller = await TokenSender.connect(server)
        reply = await caller.call(method, server.token(role), **searching(method))
        detail = "" if reply.exception is None else reply.exception.detail
        if method not in allowed([role]):
            assert detail == "ACCESS_DENIED", role
        elif role is not Role.ADMIN:
            assert detail == "BODIES_MASKED", role
            async with client_of(server, server.token(Role.READ)) as client:
                assert job in await client.lookup([job])
        else:
            assert detail == "", reply
        caller.close()


async def test_a_regex_in_a_queue_without_a_mask_is_answered(start: Start) -> None:
    server = await start(masks=WHOLE)
    async with client_of(server, server.token(Role.OPERATE, Role.PRODUCE)) as client:
        await client.enqueue("other", [BODY])
        assert (await client.count_jobs("other", JobState.PENDING, regex=REGEX)).jobs == 1
        assert (await client.count_jobs("mail_new", JobState.PENDING)).jobs == 0


async def test_refusals_of_a_regex_do_not_slow_the_caller_down(start: Start) -> None:
    """The console asks for many people, and for each queue."""
    server = await start(masks=WHOLE)
    async with client_of(server, server.token(Role.READ)) as client:
        for _ in range(20):
            with pytest.raises(BodiesMasked):
                await client.scan("mail_new", JobState.PENDING, regex=REGEX)
    assert len(server.control.refusals) == 0


async def test_a_bulk_run_of_a_caller_that_sees_no_bodies_runs_without_a_regex(start: Start) -> None:
    server = await start(masks=WHOLE)
    async with client_of(server, server.token(Role.OPERATE)) as client:
        assert (await client.start_bulk_run(BulkOrder("mail_new", BulkAction.DELETE, JobFilter(JobState.FAILED)))).id


@pytest.mark.parametrize("body", [b"\xff" + SECRET.encode(), SECRET.encode(), b'{"card": {"number": "sesame"'])
async def test_a_body_that_is_no_json_is_masked_whole_where_a_field_is(start: Start, body: bytes) -> None:
    server = await start(masks=FIELDS)
    job = await stored(server, body)
    async with client_of(server, server.token(Role.READ)) as client:
        found = (await client.lookup([job], bodies=True))[job]
        [scanned] = (await client.scan("mail_new", JobState.PENDING, bodies=True)).jobs
    assert (found.body, found.body_masked) == (scanned.body, scanned.body_masked) == (b"", True)

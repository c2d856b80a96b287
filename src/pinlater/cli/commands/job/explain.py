"""`pinlater job explain`: why jobs wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.cli import exits, options, output, unique_key_argument
from pinlater.cli.queue_notes import say_if_missing
from pinlater.client import AsyncClient, JobExplanation, QueueFacts
from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.waiting import ASKS_NOW_MS
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.job import CLAIM_TIMED_OUT_TEXT


def explain(
    descriptors: unique_key_argument.Named = None,
    unique_key: unique_key_argument.UniqueKey = None,
    queue: unique_key_argument.InQueue = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Tell why jobs wait. It may be a pause, the due time, a rate limit, no worker, or jobs before it. What an operator has to change
    comes first.

    Exit code 1 if any of the jobs does not exist, or if no job holds the unique key. A server knows only the workers that ask it for
    jobs itself: name all servers with --server.

    Example: pinlater job explain emails:s1:p1:42 --server a:9010,b:9010
    """
    names = unique_key_argument.descriptors_of(descriptors, unique_key, queue, server, timeout)

    async def ask(client: AsyncClient) -> Sequence[JobExplanation | None]:
        answers = [await _explained(client, name, timeout) for name in names]
        lacking = [name for name, answer in zip(names, answers, strict=True) if answer is None]
        await say_if_missing(client, *options.by_queue(lacking))
        return answers

    answers = options.ask(server, timeout, ask)
    found = [answer for answer in answers if answer is not None and not answer.missing]
    missing = sorted(set(names) - {answer.descriptor for answer in found})
    if json:
        output.print_json({"jobs": [_as_json(answer) for answer in found], "missing": missing})
    else:
        for number, answer in enumerate(found):
            output.print_lines([""] * bool(number))
            told = [reason.text for reason in answer.reasons()] + _notes(answer)
            output.print_text([answer.descriptor, *(f"- {text}" for text in told)])
    if missing:
        exits.fail(f"no such job: {', '.join(missing)}", exits.REFUSED)


def _notes(answer: JobExplanation) -> list[str]:
    """Returns the consequences of the reasons, as sentences."""
    return _after_a_put_off(answer) + _after_a_failure(answer) + _of_partitions(answer)


def _of_partitions(answer: JobExplanation) -> list[str]:
    """Reports how many partitions the queue has, if there are several: jobs of different partitions are not in strict order."""
    number = answer.queue.partition_number
    if number is None or number.number == 1:
        return []
    return [f"The queue has {number.told(answer.now_ms)}."]


def _after_a_put_off(answer: JobExplanation) -> list[str]:
    """What may have postponed the job, if it waits because of that."""
    if answer.job is None or not any("put_off_at_ms" in reason.figures for reason in answer.reasons()):
        return []
    return [f"It was put off because {output.why_put_off(answer.job)}."]


def _after_a_failure(answer: JobExplanation) -> list[str]:
    """The last error of a failed job, unless the reasons contain it, and how to run the job again. An expired job never runs."""
    code = answer.reasons()[0].code
    if answer.job is None or code not in ("failed", "quarantined", "cancelled"):
        return []
    runs_again = f"`pinlater job run-now {answer.descriptor}` runs it again"
    if code == "quarantined":
        return [
            f"{runs_again}, and so does `pinlater job retry`, which takes quarantined jobs as other failed ones. Find out first "
            "what its workers died of: if its next claim times out on the same day, it is quarantined again."
        ]
    error = output.error_of(answer.job) if code == "failed" else None
    told = [f"Its last error: {error}"] if error not in (None, CLAIM_TIMED_OUT_TEXT) else []
    return [*told, f"{runs_again}."]


def _as_json(answer: JobExplanation) -> dict[str, object]:
    return {
        "descriptor": answer.descriptor,
        "state": None if answer.job is None else answer.job.state.name,
        "reasons": [{"code": one.code, "text": one.text, "figures": dict(one.figures)} for one in answer.reasons()],
        "notes": _notes(answer),
        "partition_number": answer.queue.partition_number and answer.queue.partition_number._asdict(),
    }


async def _explained(client: AsyncClient, descriptor: str, timeout_s: float) -> JobExplanation | None:
    """Returns the explanation, or None if the queue does not exist."""
    queue = parse_descriptor(descriptor).queue
    try:
        answer = await client.explain_job(queue, descriptor)
    except QueueNotFound:
        return None
    if len(client.servers) < 2 or _workers_ask(answer):
        return answer
    addresses = [str(address) for address in client.servers]
    found = await asyncio.gather(*(_queue_at(address, queue, descriptor, timeout_s) for address in addresses))
    return answer._replace(queue=answer.queue.joined([facts for facts in found if facts is not None]))


def _workers_ask(answer: JobExplanation) -> bool:
    asked_at_ms = answer.queue.last_dequeue_at_ms
    asks_now = asked_at_ms is not None and answer.now_ms - asked_at_ms < ASKS_NOW_MS
    return asks_now or bool(answer.queue.waiting_dequeues)


async def _queue_at(address: str, queue: str, descriptor: str, timeout_s: float) -> QueueFacts | None:
    """What that server knows about the queue; None if it does not answer."""
    try:
        async with options.client_for(address, timeout_s) as one:
            return (await one.explain_job(queue, descriptor)).queue
    except PinLaterError:
        return None

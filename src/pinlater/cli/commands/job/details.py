"""`pinlater job show` and `pinlater job explain`: all about jobs that are named by their descriptors, or by a unique key that they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from pinlater.cli import exits, options, output
from pinlater.cli.call import OptionGroup, ServerCall
from pinlater.cli.queue_notes import say_if_missing
from pinlater.client import AsyncClient, JobExplanation, JobInfo, QueueFacts, waiting
from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.waiting import ASKS_NOW_MS
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.job import CLAIM_TIMED_OUT_TEXT, Attempt, JobState

T = TypeVar("T")
_FINISHED = (JobState.SUCCEEDED, JobState.FAILED)
_ATTEMPTS: output.Columns[Attempt] = {
    "attempt": lambda attempt: attempt.number,
    "outcome": lambda attempt: attempt.outcome,
    "claimed by": lambda attempt: output.source_of(attempt.claimed_by) or attempt.claimed_by or None,
    "took": lambda attempt: output.age(attempt.ended_at_ms - attempt.claimed_at_ms),
    "error": lambda attempt: output.error_line(attempt.error_type, attempt.error_text),
}


@dataclass(frozen=True)
class NamedJobs(OptionGroup):
    """Jobs by their descriptors, or by the unique key that they hold."""

    descriptors: Annotated[list[str] | None, typer.Argument(metavar="DESCRIPTOR...", show_default=False)] = None
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Instead of descriptors: the jobs that hold this key now, at most 200."),
    ] = None
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE",
            help="With --unique-key: look only in this queue. May be given several times.",
            autocompletion=options.complete_queue,
        ),
    ] = None

    def find(self, call: ServerCall) -> list[str]:
        """Returns the descriptors, each once. Ends the command if no job holds the key, or if a name is invalid."""
        named, key, queues = self.descriptors or [], self.unique_key, self.queue or []
        if key is None:
            if queues or not named:
                raise typer.BadParameter(
                    "--queue goes with --unique-key" if queues else "name jobs by their descriptors, or --unique-key"
                )
            options.by_queue(named)
            return list(dict.fromkeys(named))
        if named:
            raise typer.BadParameter("name jobs, or a key, not both", param_hint="--unique-key")
        found = call.ask(lambda client: client.find_unique_key(key, *queues))
        if found.incomplete:
            output.warn_incomplete("a shard is unreachable, or more jobs hold the key")
        if not found.jobs:
            where = f" in {', '.join(queues)}" if queues else ""
            exits.fail(f"no job{where} holds the unique key {key!r} now", exits.REFUSED)
        return [job.descriptor for job in found.jobs]


def show(
    call: ServerCall,
    jobs: NamedJobs,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
) -> None:
    """Show all details of jobs. The descriptors name the jobs, or --unique-key names the key that they hold. Exit code 1 if any of them
    does not exist, or if no job holds the key.

    Example: pinlater job show emails:s1:p1:42 --body
    """
    names = jobs.find(call)

    async def ask(client: AsyncClient) -> dict[str, JobInfo]:
        found = await client.lookup(names, bodies=body)
        if lacking := options.by_queue([name for name in names if name not in found]):
            await say_if_missing(client, *lacking)
        return found

    found = call.ask(ask)
    missing = [name for name in names if name not in found]
    shown = list(found.values())
    call.answer(
        {"jobs": list(map(output.info_json, shown)), "missing": missing}, lambda: _print_each(shown, _print_job)
    )
    _fail_if_missing(missing)


def explain(call: ServerCall, jobs: NamedJobs) -> None:
    """Tell why jobs wait. It may be a pause, the due time, a rate limit, no worker, or jobs before it. What an operator has to change
    comes first.

    Exit code 1 if any of the jobs does not exist, or if no job holds the unique key. A server knows only the workers that ask it for
    jobs itself: name all servers with --server.

    Example: pinlater job explain emails:s1:p1:42 --server a:9010,b:9010
    """
    names = jobs.find(call)

    async def ask(client: AsyncClient) -> Sequence[JobExplanation | None]:
        answers = [await _explained(call, client, name) for name in names]
        lacking = [name for name, answer in zip(names, answers, strict=True) if answer is None]
        await say_if_missing(client, *options.by_queue(lacking))
        return answers

    found = [answer for answer in call.ask(ask) if answer is not None and not answer.missing]
    missing = sorted(set(names) - {answer.descriptor for answer in found})
    call.answer(
        {"jobs": list(map(_as_json, found)), "missing": missing}, lambda: _print_each(found, _print_explanation)
    )
    _fail_if_missing(missing)


def _print_each(items: Sequence[T], show: Callable[[T], None]) -> None:
    """Prints the items with an empty line between two."""
    for number, item in enumerate(items):
        output.print_lines([""] * bool(number))
        show(item)


def _fail_if_missing(descriptors: Sequence[str]) -> None:
    if descriptors:
        exits.fail(f"no such job: {', '.join(descriptors)}", exits.REFUSED)


def _print_job(job: JobInfo) -> None:
    output.print_fields(_fields(job))
    if output.waits_for(job) and waiting.was_put_off(job):
        output.print_text([f"put off without an attempt: {output.why_put_off(job)}"])
    if job.attempts:
        output.print_blocks(_ATTEMPTS, job.attempts, head="attempt ")
    text, _, trace = job.error_text.partition("\n")
    if trace:
        head = "error of an earlier attempt:" if job.state is JobState.SUCCEEDED else "last error:"
        output.print_text([head, text, *trace.splitlines()])


def _fields(job: JobInfo) -> dict[str, object]:
    """Returns what is known about a job, in the order in which an operator looks for it."""
    shown: dict[str, object] = {
        "descriptor": job.descriptor,
        "state": job.state,
        "waits": output.waits_for(job),
        "task": output.task_of(job),
        "holder": output.holder_of(job),
        "age": output.age_of(job),
        "progress": job.progress,
    }
    for name, value in job._asdict().items():
        if name == "run_after_ms" and job.state is not JobState.PENDING:
            continue  # of a job that ran, it is the time of its last claim, checkpoint or retry
        if name == "attempts_remaining" and job.state in _FINISHED:
            continue
        if name.endswith("_ms"):
            shown[name.removesuffix("_ms")] = output.iso(value)
        elif name not in ("attempts", "body", "body_masked"):
            shown.setdefault(name, value)
    shown["custom_status"] = output.status_without_progress(job).rstrip()
    shown["error_text"] = job.error_text.partition("\n")[0]
    if job.state is JobState.SUCCEEDED:  # the attempts show the error, which is an old one
        shown["error_type"] = shown["error_text"] = None
    if job.body is not None:
        shown["body"] = output.shown_body(job)
    return {name: value for name, value in shown.items() if value not in (None, "", {}, ())}


def _print_explanation(answer: JobExplanation) -> None:
    told = [reason.text for reason in answer.reasons()] + _notes(answer)
    output.print_text([answer.descriptor, *(f"- {text}" for text in told)])


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


async def _explained(call: ServerCall, client: AsyncClient, descriptor: str) -> JobExplanation | None:
    """Returns the explanation, or None if the queue does not exist."""
    queue = parse_descriptor(descriptor).queue
    try:
        answer = await client.explain_job(queue, descriptor)
    except QueueNotFound:
        return None
    if len(client.servers) < 2 or _workers_ask(answer):
        return answer
    addresses = [str(address) for address in client.servers]
    found = await asyncio.gather(*(_queue_at(address, queue, descriptor, call.timeout) for address in addresses))
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

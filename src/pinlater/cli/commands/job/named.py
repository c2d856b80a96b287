"""`pinlater job ack`, `cancel`, `run-now` and `change-priority`: change jobs that are named by their descriptors.

The jobs of each queue take one request, one queue after the other. If one fails, the results of those before it are kept, and the jobs
after it are not tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import ServerCall, WaitingServerCall
from pinlater.cli.queue_notes import say_if_paused
from pinlater.client import Ack, AckResult, AsyncClient, BehindKey, JobInfo, JobState, MovedJob, Outcome
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock

_CANCELS = {
    Outcome.APPLIED: "cancelled",
    Outcome.ALREADY_FINAL: "had finished before:",
    Outcome.STALE_CLAIM: "not cancelled:",
    Outcome.NOT_FOUND: "no such job:",
    Outcome.ERROR: "not cancelled:",
}
_RUNS = {
    Outcome.ALREADY_FINAL: "succeeded or expired before, or its unique key is taken",
    Outcome.NOT_FOUND: "no such job",
    Outcome.ERROR: "unchanged",
}
_MOVES = {Outcome.ALREADY_FINAL: "succeeded before", Outcome.NOT_FOUND: "no such job"}
_RESULTS: output.Columns[ChangedJob] = {
    "descriptor": lambda changed: changed.result.descriptor,
    "outcome": lambda changed: changed.result.outcome,
    "holder": lambda changed: changed.result.holder or None,
}


class ChangedJob(NamedTuple):
    """The outcome for a job. `reason`: why it did not change; '' if that is unknown, or the result itself shows it."""

    result: AckResult | MovedJob
    reason: str = ""

    def as_json(self) -> Mapping[str, Any]:
        """The outcome, without the reason."""
        result = self.result
        moved = {"moved_to": result.moved_to or None} if isinstance(result, MovedJob) else {}
        return {
            "descriptor": result.descriptor,
            "outcome": result.outcome.name,
            **moved,
            "holder": result.holder or None,
            "held_since_ms": result.held_since_ms,
        }

    def unchanged(self, words: Mapping[Outcome, str]) -> str:
        """A line that says why the job did not change."""
        result = self.result
        if result.outcome is Outcome.STALE_CLAIM and not self.reason:
            return f"held by {output.source_of(result.holder) or 'a worker'}: {result.descriptor}"
        return f"{self.reason or words[result.outcome]}: {result.descriptor}"


class Results(NamedTuple):
    """A result for each job up to the queue whose request raised `error`. `untried`: the jobs of the queues after that one."""

    done: Sequence[ChangedJob]
    error: PinLaterError | None = None
    untried: Sequence[str] = ()


Change = Callable[[AsyncClient, str, Sequence[str]], Awaitable[Sequence[ChangedJob]]]


def ack(
    call: WaitingServerCall,
    descriptors: options.Descriptors,
    failed: Annotated[bool, typer.Option("--failed", help="The attempt failed.")] = False,
    token: Annotated[str, typer.Option(help="Count only for this claim; without it, for any holder of the job.")] = "",
    retry_delay: Annotated[str, typer.Option(help="A failed job is due again after this span.")] = "0",
    final: Annotated[bool, typer.Option("--final", help="A failed job gets no further attempt.")] = False,
    error_type: Annotated[str, typer.Option(help="What kind of error it was.")] = "",
    error_text: Annotated[str, typer.Option(help="What the error said.")] = "",
    status: Annotated[str, typer.Option(help="Appended to the custom status.")] = "",
) -> None:
    """End the attempts of claimed jobs. They have succeeded, or failed with --failed. Exit code 1 if any ack did not count.

    Example: pinlater job ack emails:s1:p1:42 --failed --retry-delay 30s --error-text 'mailbox full'
    """
    if not failed and (final or error_type or error_text or retry_delay != "0"):
        raise typer.BadParameter("--final, --retry-delay, --error-type and --error-text need --failed")
    pattern = Ack(
        "",
        succeeded=not failed,
        token=token,
        append_status=status,
        retry_delay_ms=options.span_ms(retry_delay, "--retry-delay") or 0,
        final=final,
        error_type=error_type,
        error_text=error_text,
    )

    async def finish(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[ChangedJob]:
        return list(map(ChangedJob, await client.ack(queue, [pattern._replace(descriptor=name) for name in names])))

    _change(call, descriptors, finish, lambda results: output.print_blocks(_RESULTS, results))


def cancel(call: ServerCall, descriptors: options.Descriptors) -> None:
    """Cancel unfinished jobs. They become failed, with status `cancelled`. Exit code 1 if any was not cancelled.

    The worker that runs a job learns of it with its next heartbeat or ack; the command names that worker.

    Example: pinlater job cancel emails:s1:p1:42
    """

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[ChangedJob]:
        results = await client.cancel(queue, names)
        jobs = await _look_up(client, [result.descriptor for result in results if result.applied])
        return [ChangedJob(_with_holder(result, jobs.get(result.descriptor))) for result in results]

    _change(call, descriptors, change, _print_cancels)


def change_priority(
    call: ServerCall,
    descriptors: options.Descriptors,
    priority: Annotated[int, typer.Option(min=1, max=127, help="That the jobs get; 1 is the highest.")],
) -> None:
    """Give waiting or failed jobs another priority. Their descriptors change with it. Exit code 1 if any did not change. A repeat is
    safe.

    Example: pinlater job change-priority emails:s1:p3:42 --priority 1
    """

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[ChangedJob]:
        results = await client.change_priority(queue, names, priority)
        behind = await _behind_others(client, queue, results)
        return [ChangedJob(result, behind.get(result.descriptor, "")) for result in results]

    def told(changed: ChangedJob) -> str:
        result = changed.result
        if not result.applied or not isinstance(result, MovedJob):
            return changed.unchanged(_MOVES)
        if result.moved_to == result.descriptor:
            return f"has priority {priority} already: {result.descriptor}"
        return f"moved to {result.moved_to}"

    _change(call, descriptors, change, lambda results: output.print_text(list(map(told, results))), with_reasons=True)


def run_now(
    call: ServerCall,
    descriptors: options.Descriptors,
    attempts: Annotated[
        int, typer.Option(min=1, help="Attempts that a failed job gets; a waiting one keeps its own.")
    ] = 1,
) -> None:
    """Make waiting and failed jobs due now. Exit code 1 if any did not change.

    Example: pinlater job run-now emails:s1:p1:42
    """
    run_jobs(call, descriptors, attempts, None, "due now: {}")


def run_jobs(call: ServerCall, descriptors: Sequence[str], attempts: int, run_after_ms: int | None, done: str) -> None:
    """Makes the jobs due and prints the result of each. `done`: a sentence about a job that changed, which replaces the braces. Notes if
    a queue is paused.
    """

    async def change(client: AsyncClient, queue: str, names: Sequence[str]) -> Sequence[ChangedJob]:
        results = await client.run_jobs(queue, names, attempts=attempts, run_after_ms=run_after_ms)
        if any(result.applied for result in results):
            await say_if_paused(client, queue)
        final = [result.descriptor for result in results if result.outcome is Outcome.ALREADY_FINAL]
        jobs = await _look_up(client, final)
        behind = await _behind_others(client, queue, results)
        return [
            ChangedJob(result, behind.get(result.descriptor) or _reason(jobs.get(result.descriptor)))
            for result in results
        ]

    def told(changed: ChangedJob) -> str:
        return done.format(changed.result.descriptor) if changed.result.applied else changed.unchanged(_RUNS)

    _change(call, descriptors, change, lambda results: output.print_text(list(map(told, results))), with_reasons=True)


def _change(
    call: ServerCall,
    descriptors: Sequence[str],
    change: Change,
    show: Callable[[Sequence[ChangedJob]], None],
    *,
    with_reasons: bool = False,
) -> None:
    """Changes the jobs and prints what happened to each. An invalid descriptor ends the command before anything is changed. Exit code 1 if
    any job did not change. `with_reasons`: the JSON has them, too."""
    grouped = options.by_queue(descriptors)
    done, error, untried = call.ask(lambda client: _change_all(client, grouped, change))
    if done or error is None:
        with output.only_record("what was changed stays so"):
            reasons = ({"reason": each.reason or None} if with_reasons else {} for each in done)
            document = [{**each.as_json(), **reason} for each, reason in zip(done, reasons, strict=True)]
            call.answer({"results": document}, lambda: show(done))
    if untried:
        notes.write(f"not tried: {', '.join(untried)}")
    if error is not None:
        exits.fail_for(error)
    if not all(each.result.applied for each in done):
        raise typer.Exit(exits.REFUSED)


async def _change_all(client: AsyncClient, grouped: Mapping[str, Sequence[str]], change: Change) -> Results:
    done: list[ChangedJob] = []
    left = list(grouped.items())
    while left:
        queue, names = left.pop(0)
        try:
            done += await change(client, queue, names)
        except PinLaterError as error:
            return Results(done, error, [name for _, untried in left for name in untried])
    return Results(done)


def _print_cancels(results: Sequence[ChangedJob]) -> None:
    output.print_text([f"{_CANCELS[each.result.outcome]} {each.result.descriptor}" for each in results])
    for result, _ in results:
        if result.applied and result.holder:
            notes.write(
                f"{result.descriptor} runs on {output.source_of(result.holder) or 'a worker'} until that learns of it: "
                "with its next heartbeat, within a third of the claim timeout, or ack"
            )


async def _look_up(client: AsyncClient, descriptors: Sequence[str]) -> Mapping[str, JobInfo]:
    """Returns these jobs, or none if they can't be looked up: the caller must still learn what was changed."""
    try:
        return await client.lookup(descriptors) if descriptors else {}
    except PinLaterError:
        return {}


def _with_holder(result: AckResult, job: JobInfo | None) -> AckResult:
    """The result of a cancelled job names the worker that had claimed the job."""
    last = job.attempts[-1] if job is not None and job.attempts else None
    if job is None or last is None or last.outcome != "cancelled" or last.ended_at_ms != job.finished_at_ms:
        return result  # no worker held it
    return result._replace(holder=last.claimed_by, held_since_ms=last.claimed_at_ms)


async def _behind_others(
    client: AsyncClient, queue: str, results: Sequence[AckResult] | Sequence[MovedJob]
) -> dict[str, str]:
    """Returns, by descriptor, why jobs that no worker holds did not change. A job is left out if it waits behind no other, or can't be
    looked up.
    """
    found: dict[str, str] = {}
    for result in results:
        if result.outcome is Outcome.STALE_CLAIM and not result.holder:
            try:
                behind = (await client.explain_job(queue, result.descriptor)).behind
            except PinLaterError:  # the caller must still learn what was changed
                return found
            if isinstance(behind, BehindKey):
                found[result.descriptor] = f"waits behind {behind.first} of its ordering key"
            elif behind is not None:
                found[result.descriptor] = f"waits for jobs on shard {behind.shard}"
    return found


def _reason(job: JobInfo | None) -> str:
    """Why it can't run again; '' if that is not certain: this machine's clock may be behind the servers'."""
    if job is None:
        return ""
    if job.state is JobState.SUCCEEDED:
        return "succeeded before"
    if job.expires_at_ms is not None:
        has_expired = job.expires_at_ms <= SystemClock().now_ms()
        return f"expired at {output.iso(job.expires_at_ms)}" if has_expired else ""
    return f"another job has its unique key {job.unique_key!r}" if job.unique_key else ""

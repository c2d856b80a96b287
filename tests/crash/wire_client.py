"""A blocking client from the generated types and Apache's own transports: what any Thrift program would be.

Not the package's client, so that the harness shares no code with what it breaks. One object, one connection, one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

from tests.compiled import PinLater as _service
from tests.compiled import ttypes as _ttypes

# Generated code has no types.
PinLater: Any = _service
ttypes: Any = _ttypes

# A server that isn't there is what this harness is about; no line about each try.
logging.getLogger("thrift.transport.TSocket").setLevel(logging.CRITICAL)


class Job(NamedTuple):
    """A job as it was handed out."""

    descriptor: str
    token: str
    body: str
    attempts_remaining: int
    deadline_ms: int


class Outcome(NamedTuple):
    """What became of an ack or release."""

    descriptor: str
    outcome: int
    holder: str


class Info(NamedTuple):
    """What a lookup says."""

    state: int
    attempts_remaining: int
    attempts_allowed: int


class RefusedByService(Exception):
    """The service's own error, as it came. Generated exceptions are immutable, which `with` and `raise` can't live with."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer.message)
        self.code = int(answer.errorCode)
        self.detail = str(answer.detail or "")
        self.retryable = bool(answer.retryable)


GONE = (TException, OSError, EOFError, RefusedByService)
"""What a call raises that brought no result: no answer, or a refusal; `refusal_of` tells which."""


def refusal_of(error: BaseException) -> tuple[int, str, bool] | None:
    """(code, detail, retryable) where the server did answer, with an error; None where the call may or may not have happened."""
    return (error.code, error.detail, error.retryable) if isinstance(error, RefusedByService) else None


class WireClient:
    """Connects at once. Any error of a call leaves the connection unusable, but for the server's own answers."""

    def __init__(self, port: int, source: str = "crash", *, timeout_seconds: float = 30.0) -> None:
        socket = TSocket("127.0.0.1", port)
        socket.setTimeout(timeout_seconds * 1000)
        self._transport = TFramedTransport(socket)
        self._protocol = TBinaryProtocol(self._transport)
        self._context = ttypes.RequestContext(source=source)
        try:
            self._transport.open()
        except BaseException:
            self._transport.close()
            raise

    def _call(self, method: str, **arguments: object) -> Any:
        """One call and its answer, as a generated client makes them."""
        protocol = self._protocol
        protocol.writeMessageBegin(method, TMessageType.CALL, 7)
        getattr(PinLater, f"{method}_args")(requestContext=self._context, **arguments).write(protocol)
        protocol.writeMessageEnd()
        self._transport.flush()
        name, kind, number = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(protocol)
            raise error
        assert (name, number) == (method, 7), f"an answer to {name} {number}, not to {method} 7"
        result = getattr(PinLater, f"{method}_result")()
        result.read(protocol)
        protocol.readMessageEnd()
        if result.e is not None:
            raise RefusedByService(result.e)
        return getattr(result, "success", None)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._transport.close()

    def create_queue(self, queue: str) -> None:
        self._call("createQueue", name=queue)

    def enqueue(
        self,
        queue: str,
        bodies: Sequence[str],
        *,
        attempts: int = 50,
        claim_timeout_ms: int | None = None,
        ordering_keys: Sequence[str | None] = (),
    ) -> list[str]:
        """The descriptors. `ordering_keys`: of each job; empty for none."""
        jobs = [
            ttypes.PinLaterJob(
                body=body.encode(),
                numAttemptsAllowed=attempts,
                claimTimeoutMillis=claim_timeout_ms,
                orderingKey=ordering_keys[index] if ordering_keys else None,
            )
            for index, body in enumerate(bodies)
        ]
        answer = self._call("enqueueJobs", request=ttypes.PinLaterEnqueueRequest(queueName=queue, jobs=jobs))
        return list(answer.jobDescriptors)

    def claim(self, queue: str, limit: int, *, wait_ms: int | None = None) -> list[Job]:
        """Jobs, with their tokens."""
        request = ttypes.PinLaterDequeueRequest(queueName=queue, limit=limit, waitMillis=wait_ms)
        answer = self._call("dequeueJobs", request=request)
        jobs = []
        for descriptor, body in (answer.jobs or {}).items():
            facts = answer.jobMetadata[descriptor]
            jobs.append(
                Job(descriptor, facts.claimToken, body.decode(), facts.attemptsRemaining, facts.claimDeadlineMillis)
            )
        return jobs

    def ack(self, queue: str, acks: Sequence[tuple[str, str | None, bool]], *, delay_ms: int = 0) -> list[Outcome]:
        """Acks (descriptor, token, succeeded); successes first in the answer, then failures, each in order."""
        infos: dict[bool, list[Any]] = {True: [], False: []}
        for descriptor, token, succeeded in acks:
            info = ttypes.PinLaterJobAckInfo(
                jobDescriptor=descriptor, claimToken=token, retryDelayMillis=delay_ms if not succeeded else 0
            )
            infos[succeeded].append(info)
        request = ttypes.PinLaterJobAckRequest(queueName=queue, jobsSucceeded=infos[True], jobsFailed=infos[False])
        return _outcomes(self._call("ackJobs", request=request))

    def release(self, queue: str, claims: Sequence[tuple[str, str]]) -> list[Outcome]:
        """Gives claims back."""
        refs = [ttypes.ClaimRef(jobDescriptor=descriptor, claimToken=token) for descriptor, token in claims]
        request = ttypes.ReleaseRequest(queueName=queue, claims=refs)
        return _outcomes(self._call("releaseJobs", request=request))

    def lookup(self, descriptors: Sequence[str]) -> dict[str, Info]:
        """What is known of each; unknown ones are left out."""
        request = ttypes.PinLaterLookupJobRequest(jobDescriptors=list(descriptors))
        answer = self._call("lookupJobs", request=request)
        return {
            descriptor: Info(int(info.jobState), info.attemptsRemaining, info.attemptsAllowed)
            for descriptor, info in answer.items()
        }

    def failures(self, queue: str) -> int:
        """How many failed attempts are in its groups."""
        answer = self._call("getFailures", request=ttypes.FailuresRequest(queueNames=[queue]))
        return sum(group.failures for group in answer.groups)

    def count(self, queue: str, state: int) -> int:
        """How many are in that state (due ones only for PENDING)."""
        return int(
            self._call("getJobCount", request=ttypes.PinLaterGetJobCountRequest(queueName=queue, jobState=state))
        )


def _outcomes(answer: Sequence[Any]) -> list[Outcome]:
    return [Outcome(each.descriptor, int(each.outcome), each.holder or "") for each in answer]

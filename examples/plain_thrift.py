"""A client with Apache Thrift only, like clients in other languages. First generate its code from the IDL:

    thrift -nowarn --gen py -out examples src/pinlater/wire/pinlater.thrift

It does not use the Python package `pinlater`.
"""

from __future__ import annotations

import os

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

GENERATE = "thrift -nowarn --gen py -out examples src/pinlater/wire/pinlater.thrift"
try:
    from thrift_libs import PinLater
    from thrift_libs.ttypes import (
        PinLaterDequeueRequest,
        PinLaterEnqueueRequest,
        PinLaterException,
        PinLaterJob,
        PinLaterJobAckInfo,
        PinLaterJobAckRequest,
        RequestContext,
    )
except ImportError as error:
    raise SystemExit(f"{error}. Generate the code first, in the root of the checkout: {GENERATE}") from error

QUEUE = "plain_thrift"


def main() -> None:
    """Enqueues, claims and acknowledges; then shows an error."""
    host, _, port = os.environ.get("PINLATER_SERVERS", "127.0.0.1:9010").partition(":")
    transport = TFramedTransport(TSocket(host, int(port)))
    client = PinLater.Client(TBinaryProtocol(transport))
    transport.open()
    me = RequestContext(source="plain-thrift-example")

    client.createQueue(me, QUEUE)
    jobs = [PinLaterJob(body=b"one"), PinLaterJob(body=b"two")]
    client.enqueueJobs(me, PinLaterEnqueueRequest(queueName=QUEUE, jobs=jobs))

    claimed = client.dequeueJobs(me, PinLaterDequeueRequest(queueName=QUEUE, limit=10, waitMillis=1000))
    print("claimed", *sorted(body.decode() for body in claimed.jobs.values()))
    acks = [
        PinLaterJobAckInfo(jobDescriptor=name, claimToken=claimed.jobMetadata[name].claimToken) for name in claimed.jobs
    ]
    outcomes = client.ackJobs(me, PinLaterJobAckRequest(queueName=QUEUE, jobsSucceeded=acks))
    print("outcomes", *(outcome.outcome for outcome in outcomes))
    try:
        client.dequeueJobs(me, PinLaterDequeueRequest(queueName="no_such_queue", limit=1))
    except PinLaterException as refusal:
        print(refusal.errorCode, refusal.message)
    transport.close()


if __name__ == "__main__":
    main()

"""The envelope: how a job names its task. Producers in any language can write it.

On a server with headers, the header `pinlater-task` is the task's name and `content-type` the encoding of the body. On an original PinLater
server, which has no headers, the body is a JSON object that holds both:

    {"pinlater-task": "send", "content-type": "application/json", "headers": {"a": "b"}, "payload": {"to": "x@example.org"}}

with `payload` for JSON and `payload-base64` for other content types. Only the first key is required.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from pinlater.client.values import Job
from pinlater.domain.job import TASK_HEADER as TASK_HEADER

CONTENT_TYPE_HEADER = "content-type"
CRON_TIME_HEADER = "pinlater-cron-time"
RESERVED_HEADERS = (TASK_HEADER, CONTENT_TYPE_HEADER)
"""The headers of the envelope. All others are the producer's."""
_JSON = "application/json"


class Opened(NamedTuple):
    """A job without its envelope: `headers` are the producer's. `task` and `content_type` are '' if the job has none."""

    task: str
    content_type: str
    body: bytes
    headers: Mapping[str, str]


class _Envelope(msgspec.Struct, rename="kebab", omit_defaults=True):
    pinlater_task: str
    content_type: str = _JSON
    headers: dict[str, str] = {}
    payload: msgspec.Raw = msgspec.Raw()
    payload_base64: str = ""


_decoder = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()


def headers_for(task: str, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of a job on a server with headers."""
    envelope = {TASK_HEADER: task}
    if content_type:
        envelope[CONTENT_TYPE_HEADER] = content_type
    return {**(headers or {}), **envelope}


def cron_time_text(firing: datetime, zone: ZoneInfo) -> str:
    """Returns the header's value for a firing: its time in the zone of the entry, with the zone's name in brackets (RFC 9557)."""
    name = f"[{zone.key}]" if zone.key else ""
    return firing.astimezone(zone).isoformat() + name


def cron_time_of(text: str) -> datetime:
    """Returns the time in the zone that the header names; with the offset alone if this machine does not know the zone, and in UTC
    without an offset. Raises ValueError if the text is not a time."""
    moment, _, zone = text.removesuffix("]").partition("[")
    time = datetime.fromisoformat(moment)
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(ZoneInfo(zone)) if zone else time
    except (KeyError, ValueError, OSError):
        return time


def sealed(task: str, content_type: str, headers: Mapping[str, str] | None, body: bytes) -> bytes:
    """The body of a job on a server without headers."""
    envelope = _Envelope(task, content_type or _JSON, dict(headers or {}))
    if content_type == _JSON and body:
        envelope.payload = msgspec.Raw(body)
    elif body:
        envelope.payload_base64 = b64encode(body).decode()
    return _encoder.encode(envelope)


def sealed_job(job: Job) -> Job:
    """A job whose envelope is in its headers, for a server without headers."""
    headers = dict(job.headers or {})
    task, content_type = headers.pop(TASK_HEADER, ""), headers.pop(CONTENT_TYPE_HEADER, "")
    if not task:
        return job
    return job._replace(body=sealed(task, content_type, headers, job.body), headers=None)


def opened(body: bytes, headers: Mapping[str, str]) -> Opened:
    """Takes a claimed job out of its envelope. A body that is not a valid envelope is an ordinary body."""
    task, content_type = headers.get(TASK_HEADER, ""), headers.get(CONTENT_TYPE_HEADER, "")
    own = dict(headers)
    for name in RESERVED_HEADERS:
        own.pop(name, None)
    if task or b'"pinlater-task"' not in body[:200] or not body.lstrip().startswith(b"{"):
        return Opened(task, content_type, body, own)
    try:
        envelope = _decoder.decode(body)
        payload = (
            b64decode(envelope.payload_base64, validate=True) if envelope.payload_base64 else bytes(envelope.payload)
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):  # a body nested too deeply is not an envelope
        return Opened("", content_type, body, own)
    return Opened(envelope.pinlater_task, envelope.content_type, payload, {**envelope.headers, **own})

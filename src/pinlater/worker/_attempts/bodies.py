"""Bodies of a task's jobs: the codec that reads one, and the body that the next attempt gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinlater.worker._enqueueing.arguments import OCTETS
from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec
from pinlater.worker.errors import CantDecode
from pinlater.worker.tasks import Task

CODECS: Mapping[str, Codec] = {codec.content_type: codec for codec in (JsonCodec(), MessagePackCodec())}


def codec_of(task: Task[..., Any], content_type: str) -> Codec:
    """The codec of a job's content type; the task's own if the job names none. Raises `CantDecode`."""
    codec = task.options.codec
    if not content_type or content_type in (codec.content_type, OCTETS):
        return codec
    known = CODECS.get(content_type)
    if known is None:
        raise CantDecode(f"task {task.name} can't decode content-type {content_type!r}")
    return known


def next_body(task: Task[..., Any], content_type: str, value: Any, method: str) -> bytes:
    """The body for a job's next attempt: `value` itself if it is bytes, else its encoding in the job's content type.

    Raises TypeError if the task can't be called with it: the next attempt would fail the job for good.
    """
    codec = codec_of(task, content_type)
    try:
        body = value if isinstance(value, bytes) else codec.encode(value)
    except Exception as error:
        raise TypeError(f"task {task.name}: {method}() argument 'body' can't be encoded: {error}") from error
    try:
        task.parameters.decode_body(codec, body, content_type)
    except Exception as error:
        raise TypeError(f"task {task.name}: {method}() argument 'body' does not fit the task: {error}") from error
    return body

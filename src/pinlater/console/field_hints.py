"""Suggests the field that a caller may mean if a request has an unknown one, and the values of a field if a request has another."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cache

from msgspec import inspect

# Names that other systems, the command and the Python client use for a field.
_MEANT: dict[str, Sequence[str]] = {
    **dict.fromkeys(("max_attempts", "max_retries", "retries"), ("attempts_allowed", "attempts")),
    **dict.fromkeys(("at", "eta", "run_at", "schedule_at", "scheduled_at"), ("run_after_ms",)),
    **dict.fromkeys(("countdown", "after", "run_in"), ("delay_ms", "retry_delay_ms")),
    **dict.fromkeys(("timeout", "visibility_timeout"), ("claim_timeout_ms",)),
    **dict.fromkeys(("ttl", "expiry", "max_age"), ("expires_in_ms",)),
    **dict.fromkeys(("unique", "dedupe_key", "idempotency_key", "job_id", "task_id"), ("unique_key",)),
    **dict.fromkeys(("data", "payload", "args"), ("body", "body_json")),
    **dict.fromkeys(("count", "max", "max_jobs", "size"), ("limit",)),
    **dict.fromkeys(("id", "job"), ("descriptor", "descriptors")),
    "ids": ("descriptors",),
    "rate": ("jobs_per_second", "max_jobs_per_second"),
}
_NAME_CHARS_MAX = 60
_STEP = re.compile(r"\[[^]]*\]|[^.\[]+")


def hint(name: str, known: Collection[str]) -> str:
    """Returns `; did you mean X?`, with up to two names; '' if no known name is similar."""
    if len(name) > _NAME_CHARS_MAX:
        return ""
    found = _near(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower(), known)
    return f"; did you mean {' or '.join(f'`{each}`' for each in found[:2])}?" if found else ""


def _near(word: str, known: Collection[str]) -> Sequence[str]:
    """Finds a field with the same word, in the table, with a unit or another word before or after it, or with a similar spelling."""
    if word in known:
        return [word]
    meant = [each for each in _MEANT.get(word, ()) if each in known]
    longer = [each for each in known if each.startswith(f"{word}_")]
    ending = [each for each in known if each.endswith(f"_{word}")]
    return meant[:1] or longer or ending or get_close_matches(word, known, n=1)


def names_at(shape: type, path: str) -> Sequence[str]:
    """Returns the fields of the object at that path of a request, such as `jobs[3]`; none if the object does not exist."""
    return [
        field.encode_name
        for each in _kinds_at(shape, path)
        if isinstance(each, inspect.StructType)
        for field in each.fields
    ]


def values_at(shape: type, path: str) -> Sequence[str]:
    """Returns the words that the field at that path of a request may be; none if it may be others."""
    literals = [each for each in _kinds_at(shape, path) if isinstance(each, inspect.LiteralType)]
    return [str(value) for each in literals for value in each.values]


def _kinds_at(shape: type, path: str) -> Sequence[inspect.Type]:
    kind = _kind_of(shape)
    for step in _STEP.findall(path):
        kind = next((inner for each in _alternatives(kind) if (inner := _inside(each, step))), inspect.AnyType())
    return _alternatives(kind)


@cache
def _kind_of(shape: type) -> inspect.Type:
    return inspect.type_info(shape)


def _alternatives(kind: inspect.Type) -> Sequence[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _inside(kind: inspect.Type, step: str) -> inspect.Type | None:
    if isinstance(kind, inspect.CollectionType) and step.startswith("["):
        return kind.item_type
    if isinstance(kind, inspect.StructType):
        return next((field.type for field in kind.fields if field.encode_name == step), None)
    return None

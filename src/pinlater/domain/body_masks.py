"""Which bodies, and which fields of JSON bodies, only some roles may see: this is decided only here.

If a whole body is masked, so are the texts that workers write about the job, since they may quote it: errors, custom status and progress.
Types of errors stay.

Pure. Masks are for people who look at jobs: a dequeue returns whole bodies. A field is named by the end of its path, in upper or lower
case: `number` is each field of this name at any depth, `card.number` only those in a field `card`. Arrays are no part of a path. A body
that can't be parsed is masked completely: one that is not a JSON object or array, is not UTF-8, is nested too deeply, or is longer than
`PARSED_BYTES_MAX`.

Weakness: JSON inside a JSON string is not parsed. Texts may quote a field that is masked. The length and the other fields of a
partly masked body remain visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any, NamedTuple

from pinlater.domain.access import ALL_QUEUES, Role, check_pattern, effective, matches
from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX
from pinlater.domain.transitions import STATUS_CANCELLED, STATUS_EXPIRED

MASKED_VALUE = "[masked]"
PARSED_BYTES_MAX = 128 * 1024
"""One body is parsed in one turn of the event loop: that many bytes take some 50 ms at worst."""
MASKED_WHOLE = b""
_PATH_CHARACTERS_MAX = 500
_QUEUES_REMEMBERED_MAX = 1_000
_MASKED_JSON = quoted(MASKED_VALUE)
_WORDS = {None: "null", True: "true", False: "false"}


class MaskedField(NamedTuple):
    """`queues`: a pattern. `path`: names, joined by dots, in lower case."""

    queues: str
    path: str


def parse_field(text: str) -> MaskedField:
    """A field as the settings name it: `card.number`, or `mail*:card.number` in some queues. Raises ValueError."""
    before, colon, behind = text.partition(":")
    queues, path = (before.strip(), behind.strip()) if colon else (ALL_QUEUES, before.strip())
    if not all(path.split(".")) or len(path) > _PATH_CHARACTERS_MAX:
        raise ValueError(f"{text[:100]!r} is not a field such as password, card.number or mail*:card.number")
    return MaskedField(check_pattern(queues), path.casefold())


class QueueMask(NamedTuple):
    """What is masked in the bodies of a queue: all bodies, or the fields at these ends of paths, each beginning with a dot. `texts`:
    also what workers write about the jobs."""

    whole: bool = False
    ends: tuple[str, ...] = ()
    texts: bool = False

    @property
    def hides(self) -> bool:
        """Whether anything is masked."""
        return self.whole or bool(self.ends)

    def masked(self, body: bytes) -> bytes | None:
        """The masked body, or None if nothing in it is masked."""
        if self.whole:
            return MASKED_WHOLE
        if not self.ends or not body:
            return None
        return _with_masked_fields(body, self.ends)


class BodyMasks:
    """The masks of a server. `shown_to`: callers with one of these roles see all bodies. `texts`: whether what workers write about jobs of
    `queues` is masked, too. Raises ValueError for an invalid pattern or field."""

    def __init__(
        self,
        queues: Sequence[str] = (),
        fields: Sequence[str] = (),
        shown_to: Iterable[Role] = (Role.ADMIN,),
        *,
        texts: bool = True,
    ) -> None:
        self._texts = texts
        self._queues = tuple(map(check_pattern, queues))
        self._fields = tuple(map(parse_field, fields))
        self._shown_to = frozenset(shown_to)
        self._known: dict[str, QueueMask] = {}

    def hide_from(self, roles: Iterable[Role]) -> bool:
        """Returns whether a caller with these roles sees bodies masked."""
        return bool(self._queues or self._fields) and self._shown_to.isdisjoint(effective(roles))

    def of(self, queue: str) -> QueueMask:
        known = self._known.get(queue)
        if known is None:
            ends = dict.fromkeys(f".{field.path}" for field in self._fields if matches([field.queues], queue))
            whole = matches(self._queues, queue)
            known = QueueMask(whole, tuple(ends), whole and self._texts)
            if len(self._known) < _QUEUES_REMEMBERED_MAX and len(queue) <= QUEUE_NAME_CHARS_MAX:
                self._known[queue] = known
        return known


NO_MASKS = BodyMasks()


def masked_text(text: str | None) -> str | None:
    """Returns a text in masked form. An empty text stays empty."""
    return MASKED_VALUE if text else text


def masked_status(status: str) -> str:
    """The masked form of a custom status: it keeps the word for a job that was cancelled or has expired, by which clients know it."""
    word = next((word for word in (STATUS_CANCELLED, STATUS_EXPIRED) if status.endswith(word)), "")
    return word if status == word else f"{MASKED_VALUE} {word}".rstrip()


class _JsonObject(NamedTuple):
    """An object with all of its fields: a name may occur twice."""

    fields: list[tuple[str, Any]]


class _JsonNumber(NamedTuple):
    """A number exactly as written, with all its digits."""

    text: str


_decoder = json.JSONDecoder(
    object_pairs_hook=_JsonObject, parse_int=_JsonNumber, parse_float=_JsonNumber, parse_constant=_JsonNumber
)


def _with_masked_fields(body: bytes, ends: tuple[str, ...]) -> bytes | None:
    if len(body) > PARSED_BYTES_MAX:
        return MASKED_WHOLE
    try:
        value = _decoder.decode(body.decode())
        if not isinstance(value, list | _JsonObject):
            return MASKED_WHOLE
        writer = _MaskingWriter(ends)
        writer.write(value, "")
        return "".join(writer.parts).encode() if writer.has_masked else None
    except (ValueError, RecursionError):
        return MASKED_WHOLE


class _MaskingWriter:
    """Writes parsed JSON with `MASKED_VALUE` instead of the values at paths with one of these ends."""

    def __init__(self, ends: tuple[str, ...]) -> None:
        self._ends = ends
        self._tail = max(map(len, ends))  # no more of a path is compared
        self.has_masked = False
        self.parts: list[str] = []

    def write(self, value: Any, path: str) -> None:
        match value:
            case _JsonObject(fields):
                self._write_object(fields, path)
            case list():
                self._write_array(value, path)
            case _JsonNumber(text):
                self.parts.append(text)
            case str():
                self.parts.append(quoted(value))
            case _:
                self.parts.append(_WORDS[value])

    def _write_object(self, fields: list[tuple[str, Any]], path: str) -> None:
        self.parts.append("{")
        for index, (name, value) in enumerate(fields):
            self.parts.append(f"{', ' if index else ''}{quoted(name)}: ")
            inner = f"{path}.{name.casefold()}"[-self._tail :]
            if inner.endswith(self._ends):
                self.has_masked = True
                self.parts.append(_MASKED_JSON)
            else:
                self.write(value, inner)
        self.parts.append("}")

    def _write_array(self, values: list[Any], path: str) -> None:
        self.parts.append("[")
        for index, value in enumerate(values):
            if index:
                self.parts.append(", ")
            self.write(value, path)
        self.parts.append("]")

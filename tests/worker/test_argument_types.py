"""An argument of a builtin type that no worker takes is refused where it is enqueued; what a worker takes never is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from pinlater.worker import Codec, JsonCodec, MessagePackCodec, Worker
from pinlater.worker._enqueueing.argument_types import RefusedTypes


class Size(IntEnum):
    SMALL = 1


# No str that is not base64, which a worker takes for bytes.
VALUES: list[Any] = [
    *("YWJj", b"abc", 1, 1.0, 1.5, True, None, [1], ["a"], (1, 2), {"a": 1}, {}, [], {1}, frozenset({"a"})),
    *(Size.SMALL, UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC)),
]
ANNOTATIONS: list[Any] = [
    *(int, str, float, bool, bytes, list, dict, tuple, list[int], dict[str, int], tuple[int, int], Any, object, set),
    *(
        int | None,
        str | None,
        int | str,
        list[int] | None,
        int | datetime,
        Size,
        UUID,
        float | bool | dict[str, int],
    ),
]


def task_with(annotation: Any, codec: Codec) -> Any:
    def run(first: Any, second: int = 0) -> None: ...

    run.__annotations__ = {"first": annotation, "second": int, "return": None}
    return Worker("127.0.0.1:1").task("q", codec=codec)(run)


@pytest.mark.parametrize("codec", [JsonCodec(), MessagePackCodec()])
@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_what_is_refused_is_what_the_worker_could_not_take(annotation: Any, codec: Codec) -> None:
    task = task_with(annotation, codec)
    unchecked = task.parameters._replace(refused=RefusedTypes())
    for value in VALUES:
        try:
            task.job(value)
        except TypeError as error:
            if "can't be encoded" in str(error):
                continue
            assert str(error).startswith("task run: argument 'first' must be ")  # noqa: PT017 - of some values only
            with pytest.raises(msgspec.ValidationError):
                unchecked.decode_body(codec, unchecked.encode(codec, (value,), {}))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "no", "must be int, not str"),
        (int, True, "must be int, not bool"),
        (int, 1.0, "must be int, not float"),
        (int, None, "must be int, not NoneType"),
        (str, 5, "must be str, not int"),
        (float, "1", "must be float, not str"),
        (bool, 1, "must be bool, not int"),
        (int | None, "no", "must be int | None, not str"),
        (list[int], "no", "must be list[int], not str"),
        (dict[str, int], [1], "must be dict[str, int], not list"),
    ],
    ids=str,
)
def test_the_error_names_task_and_argument(annotation: Any, value: Any, message: str) -> None:
    task = task_with(annotation, JsonCodec())
    calls: list[Callable[[], object]] = [
        lambda: task.enqueue(value),
        lambda: task.job(first=value),
        lambda: task.using(delay=1).enqueue(value),
    ]
    for call in calls:
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value) == f"task run: argument 'first' {message}"


def test_an_argument_that_is_left_to_its_default_is_not_checked() -> None:
    def run(first: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - as users write it

    task = Worker("127.0.0.1:1").task("q")(run)
    assert task.job().body == b"{}"


def test_a_codec_of_the_users_own_decides_for_itself() -> None:
    class Text:
        content_type = "text/plain"

        def encode(self, value: Any) -> bytes:
            return str(value).encode()

        def decode(self, body: bytes, into: Any) -> Any: ...

    assert task_with(int, Text()).job("no").body == b"{'first': 'no'}"

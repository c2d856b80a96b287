"""An argument of a builtin type that no worker takes is refused where it is enqueued; what a worker takes never is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from pinlater.worker import Codec, JsonCodec, MessagePackCodec, Worker


class Size(IntEnum):
    SMALL = 1


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    name: str
    mail: str = ""


class Parcel(msgspec.Struct):
    grams: int = 0


class Row(msgspec.Struct, array_like=True):
    number: int = 1


class Named(NamedTuple):
    number: int = 1


class Typed(TypedDict, total=False):
    name: str


class Model(pydantic.BaseModel):
    name: str = ""


class Numbers(pydantic.RootModel[list[int]]):
    """What only its own code can tell about."""


UUID_TEXT = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
# Of each checked type, values that decode to as many annotations as there are; no str that is not base64, which a worker takes for bytes.
CHECKED: dict[type, list[Any]] = {
    str: ["YWJj", "", "1.5", "red", "2026-01-01T00:00:00Z", "2026-01-01", "12:00:00", "P1D", UUID_TEXT],
    bytes: [b"abc", b"", UUID(UUID_TEXT).bytes],
    int: [1, 0, -1, 2**40],
    float: [1.0, 1.5],
    bool: [True, False],
    type(None): [None],
    list: [[], [1], ["a"], [1, 2], [[1]]],
    tuple: [(), (1,), (1, 2)],
    dict: [{}, {"a": 1}, {"name": "Ada"}, {"grams": 1}],
    bytearray: [bytearray(b"abc"), bytearray(UUID(UUID_TEXT).bytes)],
    memoryview: [memoryview(b"abc"), memoryview(UUID(UUID_TEXT).bytes)],
    set: [set(), {1}, {"a"}, {1, 2}],
    frozenset: [frozenset(), frozenset({1}), frozenset({1, 2})],
    UUID: [UUID(UUID_TEXT)],
    Decimal: [Decimal("1.5"), Decimal(1), Decimal(1234)],
    timedelta: [timedelta(days=1), timedelta(seconds=5)],
    datetime: [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 5)],  # noqa: DTZ001 - as users write it
    date: [date(2026, 1, 1)],
    time: [time(12), time(12, tzinfo=UTC)],
}
BYTES = (bytes, bytearray, memoryview)
OTHERS: list[Any] = [
    *(Size.SMALL, Colour.RED, Address("Ada"), Parcel(), Row(), Named(), Typed(), Model(), Numbers([1])),
]
VALUES: list[Any] = [value for values in CHECKED.values() for value in values] + OTHERS
ANNOTATIONS: list[Any] = [
    *(int, str, float, bool, bytes, list, dict, tuple, list[int], dict[str, int], tuple[int, int], Any, set),
    *(int | None, str | None, int | str, list[int] | None, int | datetime, float | bool | dict[str, int], None),
    *(
        datetime,
        date,
        time,
        timedelta,
        UUID,
        Decimal,
        Size,
        Colour,
        Literal["red", 1],
        Literal["red"],
        Literal[1, None],
    ),
    *(Address, Parcel, Row, Named, Typed, frozenset[int], Sequence[int], Mapping[str, int]),
    *(Address | None, Parcel | None, Parcel | list[int], Row | None, datetime | None, UUID | int, Colour | None),
    *(Typed | None, Named | None, Address | str, date | None, bytearray),
    *(Annotated[int, msgspec.Meta(ge=0)], Annotated[str, "text"] | None, NewType("Grams", int), msgspec.Raw),
]
LEFT_TO_A_HOOK: list[Any] = [Model, Numbers, Model | None, Numbers | None, object]
CODECS = (JsonCodec(), MessagePackCodec())


class UncheckedJson(JsonCodec):
    """Is taken for a codec of the user's own, of which it is not known what it takes."""


class UncheckedMessagePack(MessagePackCodec):
    """The same."""


UNCHECKED: dict[type, Codec] = {JsonCodec: UncheckedJson(), MessagePackCodec: UncheckedMessagePack()}


def task_with(annotation: Any, codec: Codec, *, alone: bool = False) -> Any:
    def run(first: Any, second: int = 0) -> None: ...

    def run_alone(first: Any) -> None: ...

    function = run_alone if alone else run
    function.__annotations__ = {"first": annotation, "second": int, "return": None}
    return Worker("127.0.0.1:1").task("q", name="run", codec=codec)(function)


def is_taken(annotation: Any, codec: Codec, value: Any, *, alone: bool) -> bool | None:
    """Whether a worker would decode the body of this call; None if the codec can't encode it."""
    unchecked = task_with(annotation, UNCHECKED[type(codec)], alone=alone)
    try:
        body = unchecked.job(value).body
    except (TypeError, ValueError) as error:
        assert "can't be encoded" in str(error) or "must be bytes" in str(error)  # noqa: PT017 - of some values only
        return None
    try:
        unchecked.parameters.decode_body(codec, body)
    except (msgspec.ValidationError, pydantic.ValidationError, NotImplementedError):
        return False
    except TypeError as error:
        assert "unhashable" in str(error)  # noqa: PT017 - a set of lists
        return False
    return True


def tells(codec: Codec, annotation: Any, kind: type) -> bool:
    """Whether what the codec takes is what `enqueue` should take. JSON writes bytes as a text, so it takes each for the other."""
    return isinstance(codec, MessagePackCodec) or (annotation in BYTES) == (kind in BYTES)


def refusal(task: Any, value: Any) -> str:
    """What `enqueue` says of a type or a value that it refuses; '' if it takes it."""
    try:
        task.job(value)
    except (TypeError, ValueError) as error:
        if str(error).startswith(("task run: argument 'first' must be ", "task run: argument 'first' is one of ")):
            return str(error)
    return ""


@pytest.mark.parametrize("alone", [False, True], ids=["among others", "alone"])
@pytest.mark.parametrize("codec", CODECS, ids=["JSON", "MessagePack"])
@pytest.mark.parametrize("annotation", ANNOTATIONS + LEFT_TO_A_HOOK, ids=str)
def test_what_is_refused_is_what_the_worker_could_not_take(annotation: Any, codec: Codec, *, alone: bool) -> None:
    """A single parameter with fields is the whole body."""
    task = task_with(annotation, codec, alone=alone)
    refused = [value for value in VALUES if refusal(task, value) and tells(codec, annotation, type(value))]
    assert [value for value in refused if is_taken(annotation, codec, value, alone=alone)] == []


@pytest.mark.parametrize("alone", [False, True], ids=["among others", "alone"])
@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_a_builtin_type_of_which_no_value_is_taken_is_refused(annotation: Any, *, alone: bool) -> None:
    tasks = [task_with(annotation, codec, alone=alone) for codec in CODECS]
    for kind, values in CHECKED.items():
        telling = [codec for codec in CODECS if tells(codec, annotation, kind)]
        taken = any(is_taken(annotation, codec, value, alone=alone) for codec in telling for value in values)
        refused = {" must be " in refusal(task, value) for task in tasks for value in values}
        assert refused == {not taken}, kind


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
        (Address, 5, f"must be {__name__}.Address, not int"),
        (Address | None, "ada", f"must be {__name__}.Address | None, not str"),
        (datetime, 5, "must be datetime.datetime, not int"),
        (UUID | None, [1], "must be uuid.UUID | None, not list"),
        (int, {3}, "must be int, not set"),
        (str, b"hello", "must be str, not bytes"),
        (bytes, "hello", "must be bytes, not str"),
        (date, datetime(2026, 1, 1, tzinfo=UTC), "must be datetime.date, not datetime"),
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


class Lenient(Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.RED


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (Colour, "blue", "'red', not 'blue'"),
        (Colour | None, "blue", "'red', not 'blue'"),
        (Size, 2, "1, not 2"),
        (Literal["red", "green"], "blue", "'green', 'red', not 'blue'"),
        (Enum("Many", {f"N{number}": number for number in range(99)}), 99, "10, 11, ..., not 99"),
        (Lenient, "blue", ""),
        (Literal["red"] | Parcel, "blue", ""),
        (Colour, Colour.RED, ""),
        (Colour | None, None, ""),
    ],
    ids=str,
)
def test_a_value_that_is_none_of_a_few_is_refused(annotation: Any, value: Any, told: str) -> None:
    task = task_with(annotation, JsonCodec())
    if not told:
        task.job(value)
        return
    with pytest.raises(ValueError, match=f"^task run: argument 'first' is one of .*{re.escape(told)}$"):
        task.job(value)


@pytest.mark.parametrize("annotation", LEFT_TO_A_HOOK, ids=str)
@pytest.mark.parametrize("alone", [False, True], ids=["among others", "alone"])
def test_what_the_users_own_code_decodes_is_not_checked(annotation: Any, *, alone: bool) -> None:
    task = task_with(annotation, JsonCodec(), alone=alone)
    assert not any(refusal(task, value) for values in CHECKED.values() for value in values)


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

"""Encodes a function's arguments as a job's body. The function's signature decides the form:

- one parameter of type `bytes`: the body is its value;
- one parameter whose type has fields (a dataclass, a msgspec struct, a typed dictionary, a pydantic model): the body is its encoding;
- anything else: an object with the parameters' names as keys.

The worker passes parameters of the types `ClaimedJob` and `JobContext`, which are not in the body.

A function may get further parameters with defaults while its jobs wait: `decode` then also reads the earlier form, whose body is one value.

A call with a value whose type a worker would refuse fails when it is enqueued, in the caller's code, and not later in the worker. Only what
no worker with that annotation takes is refused, and bytes for a text and the reverse, and only values of the exact types of `_CHECKED`,
whose encoding is known. Values of other types pass, as do all values for a type that the codec leaves to a hook, such as a pydantic model.
Items of lists and dictionaries and fields of dataclasses are not checked.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec
from msgspec import inspect as decoded

from pinlater.client._bodies import body_of
from pinlater.client.values import ClaimedJob
from pinlater.worker.codecs import CARRIED, Codec, JsonCodec, MessagePackCodec, cant_carry, decoder_of
from pinlater.worker.context import JobContext
from pinlater.worker.errors import UnusableHandler
from pinlater.worker.other_names import argument_hint

# In JSON, bytes are a base64 text. Still none is taken for the other: the worker would get another text, or other bytes.
_BYTES: frozenset[type] = frozenset({bytes, bytearray, memoryview})
_ARRAY: frozenset[type] = frozenset({list, tuple, set, frozenset})
_NUMBER: frozenset[type] = frozenset({int, float})
# What a parameter decodes to, to the type that is encoded as a text of the same form.
_IN_TEXT: dict[type, type] = {
    decoded.DecimalType: Decimal,
    decoded.DateTimeType: datetime,
    decoded.DateType: date,
    decoded.TimeType: time,
    decoded.TimeDeltaType: timedelta,
    decoded.UUIDType: UUID,
}
_CHECKED: frozenset[type] = (
    frozenset[type]({str, bool, type(None), dict}) | _BYTES | _ARRAY | _NUMBER | frozenset(_IN_TEXT.values())
)
# What a parameter decodes to, to the types of values whose encoding decodes to it, in JSON or in MessagePack.
_TAKEN: dict[type, frozenset[type]] = {
    decoded.NoneType: frozenset({type(None)}),
    decoded.BoolType: frozenset({bool}),
    decoded.IntType: frozenset({int}),
    decoded.FloatType: _NUMBER,
    decoded.StrType: frozenset[type]({str, *_IN_TEXT.values()}),
    **{kind: frozenset({str, written}) for kind, written in _IN_TEXT.items()},
    decoded.DecimalType: frozenset({str, Decimal}) | _NUMBER,
    decoded.UUIDType: frozenset({str, UUID}) | _BYTES,
    **dict.fromkeys((decoded.BytesType, decoded.ByteArrayType, decoded.MemoryViewType), _BYTES),
    **dict.fromkeys(
        (
            decoded.ListType,
            decoded.SetType,
            decoded.FrozenSetType,
            decoded.CollectionType,
            decoded.VarTupleType,
            decoded.TupleType,
            decoded.NamedTupleType,
        ),
        _ARRAY,
    ),
    **dict.fromkeys((decoded.DictType, decoded.TypedDictType, decoded.DataclassType), frozenset({dict})),
}


# Of their values, equal ones are the same on the wire.
_CHOSEN = frozenset({str, int})
_CHOICES_SHOWN = 12


class RefusedTypes(NamedTuple):
    """The exact types of values that each parameter does not take, and its annotation for messages. Both are empty if all take all.

    `choices`: of a parameter that takes a few texts and numbers only, which.
    """

    types: Mapping[str, frozenset[type]] = {}
    annotations: Mapping[str, str] = {}
    choices: Mapping[str, Sequence[object]] = {}

    def check(self, arguments: Mapping[str, Any], task: str) -> None:
        """Raises TypeError or ValueError that names task and argument."""
        if refused := self.types:
            for name, value in arguments.items():
                if type(value) in refused[name]:
                    given = type(value).__name__
                    raise TypeError(f"task {task}: argument {name!r} must be {self.annotations[name]}, not {given}")
                if name in self.choices and type(value) in _CHOSEN and value not in self.choices[name]:
                    shown = [repr(choice) for choice in self.choices[name][:_CHOICES_SHOWN]]
                    possible = ", ".join(shown + ["..."] * (len(self.choices[name]) > len(shown)))
                    raise ValueError(f"task {task}: argument {name!r} is one of {possible}, not {value!r}")


OCTETS = "application/octet-stream"


class _Form(Enum):
    NOTHING = "nothing"
    OCTETS = "octets"
    WHOLE = "whole"
    NAMED = "named"


class Parameters(NamedTuple):
    """How a function is called. `names` and `signature` leave out what the worker passes."""

    form: _Form
    names: tuple[str, ...]
    body_type: Any
    job_names: tuple[str, ...]
    context_names: tuple[str, ...]
    signature: inspect.Signature
    positional: bool  # all parameters may be given by position
    function: str
    task: str
    has_required: bool = True
    # The parameter that was the whole body before others, with defaults, came; None if there can't be one.
    once_alone: inspect.Parameter | None = None
    refused: RefusedTypes = RefusedTypes()
    # Of the task's own codec and its `decode` for the type of the body; None if the codec is one of the user's own.
    own: tuple[Codec, Callable[[bytes], Any]] | None = None

    def encode(self, codec: Codec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a call. Raises TypeError if the arguments don't fit the signature, or one has a type that no worker takes."""
        if self.positional and not kwargs and len(args) == len(self.names):
            bound = dict(zip(self.names, args, strict=True))  # a tenth of the time that `bind` takes
        else:
            try:
                bound_arguments = self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.function}() {self._misfit(str(error), kwargs)}") from None
            if self.form in {_Form.OCTETS, _Form.WHOLE}:
                bound_arguments.apply_defaults()  # the body is the value, and must be there
            bound = bound_arguments.arguments
        if self.form is _Form.NOTHING:
            return b""
        if self.form is _Form.OCTETS:
            return body_of(bound[self.names[0]], f"task {self.task}: argument {self.names[0]!r}")
        self.refused.check(bound, self.task)
        try:
            return codec.encode(bound[self.names[0]] if self.form is _Form.WHOLE else bound)
        except Exception as error:
            raise self._cant_encode(codec, bound, error) from error

    def _misfit(self, text: str, kwargs: Mapping[str, Any]) -> str:
        """Python's own text, which names only the first mistake, with the argument that the function does not have."""
        unknown = [name for name in kwargs if name not in self.names]
        if unknown and repr(unknown[0]) not in text:
            text = f"{text}, and it has no {unknown[0]!r}"
        return text + argument_hint(unknown, self.names)

    def _cant_encode(self, codec: Codec, bound: Mapping[str, Any], error: Exception) -> Exception:
        """The error with the names of task and argument: TypeError for a value of no type that the codec knows, else ValueError."""
        kind = ValueError if isinstance(error, ValueError | OverflowError | RecursionError) else TypeError
        for argument, value in bound.items():
            try:
                codec.encode(value)
            except Exception as own:  # noqa: BLE001 - whatever a codec raises
                return kind(f"task {self.task}: argument {argument!r} can't be encoded: {own}")
        return kind(f"task {self.task}: the arguments can't be encoded: {error}")

    def content_type(self, codec: Codec) -> str:
        """The content type of `encode`; '' without a body."""
        if self.form is _Form.NOTHING:
            return ""
        return OCTETS if self.form is _Form.OCTETS else codec.content_type

    def decode(
        self, codec: Codec, body: bytes, job: ClaimedJob, context: JobContext, content_type: str = ""
    ) -> dict[str, Any]:
        """The arguments that a body encodes, with `job` and `context`. Raises the errors of the codec."""
        arguments = self.decode_body(codec, body, content_type)
        for name in self.job_names:
            arguments[name] = job
        for name in self.context_names:
            arguments[name] = context
        return arguments

    def decode_body(self, codec: Codec, body: bytes, content_type: str = "") -> dict[str, Any]:
        """The arguments that a body encodes. `content_type` is the job's, '' if unknown. Raises the errors of the codec."""
        if self.form is _Form.OCTETS:
            return {self.names[0]: body}
        if not body and not content_type and not self.has_required:
            return {}  # a call from before the function had parameters
        if self.form is _Form.WHOLE:
            return {self.names[0]: codec.decode(body, self.body_type)}
        if self.form is _Form.NAMED:
            return self._decode_named(codec, body, content_type)
        return {}

    def _decode_named(self, codec: Codec, body: bytes, content_type: str) -> dict[str, Any]:
        once_alone = self.once_alone
        try:
            own = self.own
            values = own[1](body) if own is not None and own[0] is codec else codec.decode(body, self.body_type)
        except Exception:
            if once_alone is not None and self._is_one_value(codec, body, content_type, once_alone):
                value = body if once_alone.annotation is bytes else codec.decode(body, once_alone.annotation)
                return {once_alone.name: value}
            raise
        arguments = {}
        for name in self.names:
            value = getattr(values, name)
            if value is not msgspec.UNSET:
                arguments[name] = value
        if (
            content_type == OCTETS
            and once_alone is not None
            and once_alone.annotation is bytes
            and once_alone.name not in arguments
        ):
            return {once_alone.name: body}  # bytes that happen to look like an object
        return arguments

    def _is_one_value(self, codec: Codec, body: bytes, content_type: str, once_alone: inspect.Parameter) -> bool:
        """Whether a body that isn't an object of the parameters may be the value of `once_alone`, and not an object with mistakes."""
        if once_alone.annotation is bytes:
            if content_type:
                return content_type == OCTETS
        elif content_type == OCTETS:
            return False
        try:
            keys = codec.decode(body, dict[str, Any]).keys()
        except Exception:  # noqa: BLE001 - whatever a codec raises
            return once_alone.annotation is bytes
        return once_alone.name not in keys and (self.has_required or not keys <= set(self.names))


def parameters_of(function: Callable[..., Any], task: str = "", codec: Codec | None = None) -> Parameters:
    """Reads a signature. Raises `UnusableHandler` if no job of this codec can carry the arguments. `task` is its name for messages."""
    name = getattr(function, "__qualname__", repr(function))
    task = task or name
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(target)
    except NameError as error:
        raise UnusableHandler(f"{name}: a parameter's type can't be resolved: {error}") from error
    jobs: list[str] = []
    contexts: list[str] = []
    in_body: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UnusableHandler(f"{name}: parameter {parameter} is not allowed: a body needs named parameters")
        hint = hints.get(parameter.name, Any)
        if hint is ClaimedJob or (hint is Any and parameter.name == "job"):
            jobs.append(parameter.name)
        elif hint is JobContext:
            contexts.append(parameter.name)
        else:
            if codec is not None and parameter.default is parameter.empty and cant_carry(codec, hint):
                raise UnusableHandler(
                    f"task {task}: argument {parameter.name!r}: no job can carry a {hint.__qualname__}; {CARRIED}"
                )
            in_body.append(parameter.replace(annotation=hint))
    form, body_type = _body_of(name, in_body)
    names = tuple(parameter.name for parameter in in_body)
    signature = inspect.Signature([parameter.replace(annotation=Any) for parameter in in_body])
    positional = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in in_body)
    required = [parameter for parameter in in_body if parameter.default is parameter.empty]
    return Parameters(
        form,
        names,
        body_type,
        tuple(jobs),
        tuple(contexts),
        signature,
        positional,
        name,
        task,
        bool(required),
        _once_alone(in_body, required),
        refused_types(codec, in_body) if form in {_Form.NAMED, _Form.WHOLE} else RefusedTypes(),
        _own(codec, body_type) if form is _Form.NAMED else None,
    )


def _own(codec: Codec | None, body_type: Any) -> tuple[Codec, Callable[[bytes], Any]] | None:
    decode = decoder_of(codec, body_type)
    return None if codec is None or decode is None else (codec, decode)


def _once_alone(in_body: list[inspect.Parameter], required: list[inspect.Parameter]) -> inspect.Parameter | None:
    """The parameter that was the only one if those with defaults came later, and whose value was the whole body."""
    if len(in_body) < 2 or len(required) > 1:
        return None
    candidate = (required or in_body)[0]
    return candidate if candidate.annotation is bytes or _has_fields(candidate.annotation) else None


def _body_of(name: str, parameters: list[inspect.Parameter]) -> tuple[_Form, Any]:
    if not parameters:
        return _Form.NOTHING, None
    if len(parameters) == 1:
        kind = parameters[0].annotation
        if kind is bytes:
            return _Form.OCTETS, bytes
        if _has_fields(kind):
            return _Form.WHOLE, kind
    fields = [
        (parameter.name, parameter.annotation)
        if parameter.default is parameter.empty
        else (parameter.name, typing.Union[parameter.annotation, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007
        for parameter in parameters
    ]
    try:
        body = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.Decoder(body, dec_hook=lambda into, value: value)
    except TypeError as error:
        raise UnusableHandler(f"{name}: {error}") from error
    return _Form.NAMED, body


def _has_fields(kind: Any) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or typing.is_typeddict(kind)
        or hasattr(kind, "model_validate")
        or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))
    )


def refused_types(codec: Codec | None, parameters: Sequence[inspect.Parameter]) -> RefusedTypes:
    """Nothing for a user's own codec, which may take what it likes."""
    found = {each.name: _refused(each.annotation) for each in parameters}
    if type(codec) not in (JsonCodec, MessagePackCodec) or not any(found.values()):
        return RefusedTypes()
    choices = {each.name: _choices(each.annotation) for each in parameters if found[each.name]}
    return RefusedTypes(
        found,
        {each.name: inspect.formatannotation(each.annotation) for each in parameters},
        {name: values for name, values in choices.items() if values},
    )


def _refused(annotation: Any) -> frozenset[type]:
    try:
        return _CHECKED - _taken(decoded.type_info(annotation))
    except Exception:  # noqa: BLE001 - such a type is refused or accepted elsewhere
        return frozenset()


def _choices(annotation: Any) -> Sequence[object]:
    """The values of a literal or an enum, or of either and None; none for other annotations."""
    kind = decoded.type_info(annotation)
    kinds = kind.types if isinstance(kind, decoded.UnionType) else (kind,)
    [*several] = [each for each in kinds if not isinstance(each, decoded.NoneType)]
    if len(several) == 1 and isinstance(several[0], decoded.LiteralType):
        return several[0].values
    if len(several) == 1 and isinstance(several[0], decoded.EnumType) and not _finds_more(several[0].cls):
        return [member.value for member in several[0].cls]
    return ()


def _finds_more(kind: type[Enum]) -> bool:
    """Whether the enum has a way of its own to find a member for a value."""
    return cast("Any", kind)._missing_.__func__ is not cast("Any", Enum)._missing_.__func__


def _taken(kind: decoded.Type) -> frozenset[type]:
    """The checked types whose values may decode to this."""
    if isinstance(kind, decoded.Metadata):
        return _taken(kind.type)
    if isinstance(kind, decoded.UnionType):
        return frozenset[type]().union(*map(_taken, kind.types))
    if isinstance(kind, decoded.LiteralType):
        return _as_values(kind.values)
    if isinstance(kind, decoded.EnumType):
        return _as_values([member.value for member in kind.cls])
    if isinstance(kind, decoded.StructType):
        return _ARRAY if kind.array_like else frozenset({dict})
    return _TAKEN.get(type(kind), _CHECKED)


def _as_values(values: Sequence[object]) -> frozenset[type]:
    """The types that decode to one of these, as a literal or a member of an enum. All if one of them is of a type of its own."""
    kinds = frozenset(map(type, values))
    return kinds if kinds <= {str, int, type(None)} else _CHECKED

"""The client's edge to the wire: frames out, answers or exceptions in. The only module that maps the wire's errors to ours."""

from __future__ import annotations

from typing import Any

from pinlater.client._client_call import client_name
from pinlater.client._token import TokenForCaller
from pinlater.client._wrong_values import wrong_value
from pinlater.client.errors import CallerError, InvalidArgument, PinLaterError, UnknownMethod, WorldError, error_for
from pinlater.wire import codec
from pinlater.wire.codec import Decoder, Reply, encode_call
from pinlater.wire.errors import ApplicationErrorKind
from pinlater.wire.errors import WireError as WireError
from pinlater.wire.framing import FrameSplitter as FrameReader
from pinlater.wire.generated import structs as types
from pinlater.wire.limits import WireLimits
from pinlater.wire.methods import METHODS_BY_NAME

__all__ = ["AnswerDecoder", "FrameReader", "WireError", "check_encodable", "encode_request", "types"]


def context_of(source: str, token: str) -> types.RequestContext:
    """What a call says of its caller. An empty `token` is not sent."""
    context = types.RequestContext(source=source, auth_token=token or types.NOT_SENT)
    if isinstance(token, TokenForCaller):
        context.source = token.source_of(source)
        context.on_behalf_of, context.caller_address = token.user or None, token.address or None
    return context


def encode_request(method: str, sequence: int, source: str, args: tuple[Any, ...], token: str = "") -> bytes:
    """A framed call. Raises WrongType or InvalidArgument, which name method and argument, for a value of the wrong type or out of its
    range."""
    try:
        return encode_call(method, sequence, context_of(source, token), *args)
    except WireError as error:
        raise wrong_argument(method, args, error) from None


def wrong_argument(method: str, args: tuple[Any, ...], error: WireError) -> InvalidArgument:
    """Why a call can't be encoded: names method and argument."""
    arguments = METHODS_BY_NAME[method].arguments
    # The context is no argument of the caller's.
    wrong = wrong_value(arguments.cls(None, *args), arguments.spec)
    kind = InvalidArgument if wrong is None else type(wrong)
    return kind(f"{client_name(method)}: {wrong or error.message}")


def check_encodable(value: Any, name: str) -> None:
    """Raises like `encode_request` if this struct, a generated type, can't be encoded. `name`: the caller's, of the struct."""
    try:
        codec.check_encodable(value)
    except WireError as error:
        raise wrong_value(value, types.SPECS[type(value)], name) or InvalidArgument(f"{name} {error.message}") from None


class AnswerDecoder(Decoder):
    """Decodes answers, up to a bound on their size."""

    __slots__ = ()

    def __init__(self, max_frame_bytes: int) -> None:
        super().__init__(WireLimits(max_frame_bytes=max_frame_bytes, max_container_items=1_000_000))

    def decode(self, frame: bytes, method: str) -> tuple[int, Any]:
        """The sequence id, and the value or the exception that came. Raises WireError for what is no answer."""
        reply = self.reply(frame)
        return reply.seqid, error_in(reply, method) or reply.value


def error_in(reply: Reply, method: str) -> PinLaterError | None:
    """The exception that came as the answer to a call of `method`."""
    if reply.application_error is not None:
        return _application_error(reply, method)
    refused = reply.exception
    if refused is None:
        return None
    return error_for(
        refused.error_code, refused.message, refused.detail or "", refused.retryable, refused.retry_after_ms
    )


def _application_error(reply: Reply, method: str) -> PinLaterError:
    kind, message = reply.application_error or (ApplicationErrorKind.UNKNOWN, "")
    if kind == ApplicationErrorKind.UNKNOWN_METHOD:
        return UnknownMethod(f"The server doesn't know {method}", detail="UNKNOWN_METHOD")
    text = f"{method}: {message or 'the server could not answer'}"
    if kind == ApplicationErrorKind.PROTOCOL_ERROR:
        return CallerError(text, detail="PROTOCOL_ERROR")
    return WorldError(text, detail="INTERNAL", retryable=False)

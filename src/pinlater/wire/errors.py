"""The one error of the wire, and the kinds of Thrift's own exception with which it may be answered."""

from __future__ import annotations

from enum import IntEnum


class ApplicationErrorKind(IntEnum):
    """TApplicationException's types, with Thrift's numbers."""

    UNKNOWN = 0
    UNKNOWN_METHOD = 1
    INVALID_MESSAGE_TYPE = 2
    WRONG_METHOD_NAME = 3
    BAD_SEQUENCE_ID = 4
    MISSING_RESULT = 5
    INTERNAL_ERROR = 6
    PROTOCOL_ERROR = 7


class WireError(Exception):
    """Bytes that are not a call or reply of ours.

    If the message's header could be read, `name` and `seqid` identify the call to answer, with a TApplicationException of `kind`, and the
    connection stays open. If it could not (`name` is None) the start of the next message is unknown: the connection has to be closed.
    `oneway`: the caller doesn't wait for an answer.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ApplicationErrorKind = ApplicationErrorKind.PROTOCOL_ERROR,
        name: bytes | None = None,
        seqid: int = 0,
        oneway: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.name = name
        self.seqid = seqid
        self.oneway = oneway

    @property
    def fatal(self) -> bool:
        """Whether the stream it came from is lost."""
        return self.name is None

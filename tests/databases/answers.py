"""Answers of a server that become others on their way through the proxy."""

from __future__ import annotations

_HEAD = 4
_MORE_FOLLOWS = 0x0008


class OtherAnswer:
    """Takes the whole answer of a server, which comes in one piece, and gives `answer` in its place."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def take(self, data: bytes) -> bytes | None:
        return self._answer


class LastAnswer:
    """Takes the answers of a MySQL server to one packet of statements, and makes the last one an error. `alone`: without those before it.

    It takes bytes until the last answer is there, which must be that of a statement without rows, as COMMIT is.
    """

    def __init__(self, code: int, message: str, *, alone: bool = False) -> None:
        self._alone = alone
        self._error = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + message.encode()
        self._begun = b""

    def take(self, data: bytes) -> bytes | None:
        """All answers, once they are complete; None before."""
        self._begun += data
        start, last = 0, 0
        while start < len(self._begun):
            last = start
            start += _HEAD + int.from_bytes(self._begun[start : start + 3], "little")
        if start != len(self._begun) or not _ends_it(self._begun[last + _HEAD :]):
            return None
        if self._alone:
            last = 0
        number = self._begun[last + 3 : last + _HEAD]
        return self._begun[:last] + len(self._error).to_bytes(3, "little") + number + self._error


def _ends_it(packet: bytes) -> bool:
    """OK, no row met, no more answers; or an error."""
    if packet[:1] == b"\xff":
        return True
    return packet[:3] == b"\0\0\0" and not int.from_bytes(packet[3:5], "little") & _MORE_FOLLOWS

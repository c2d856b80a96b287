"""Settings of access control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pinlater.domain.access import Role, check_pattern
from pinlater.domain.body_masks import BodyMasks, parse_field
from pinlater.domain.invalid_settings import InvalidSettings
from pinlater.server.access.quotas import Quota, check_bytes


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What callers may do. [Control access](../how-to/access.md) explains it."""

    tokens_file: Path | None = None
    """The file of tokens, which `pinlater token` edits. Looked at again every second. Not set: there is no access control."""
    default_roles: tuple[str, ...] = ()
    """Roles of callers without a token: any of read, produce, work, operate, admin. Empty: they are refused."""
    insecure: bool = False
    """Allows a server without access control to listen beyond loopback."""
    token_max_connections: int = 0
    """Most connections of the callers with one token, where the file does not say. 0: no bound. Each server process counts for itself."""
    token_max_polls: int = 0
    """Most dequeues of one token that wait for jobs."""
    token_max_bytes_in_flight: int = 0
    """Most bytes of one token in flight: requests that are not answered yet, answers that clients have not read. At least 64 KiB."""
    no_token_max_connections: int = 0
    """The same for all callers without a token together."""
    no_token_max_polls: int = 0
    """The same for all callers without a token together."""
    no_token_max_bytes_in_flight: int = 0
    """The same for all callers without a token together."""

    masked_queues: tuple[str, ...] = ()
    """Patterns of the queues whose bodies are masked in look-ups: `mail*`."""
    masked_texts: bool = True
    """Whether errors, custom status and progress of jobs of these queues are masked too: they may quote bodies."""
    masked_fields: tuple[str, ...] = ()
    """Fields of JSON bodies that are masked in look-ups, in all queues or in those of a pattern: `password`, `card.number`,
    `mail*:to`."""
    unmasked_roles: tuple[str, ...] = (Role.ADMIN.value,)
    """Roles that see bodies without masks."""

    def __post_init__(self) -> None:
        _check_roles(self.default_roles, "default_roles")
        _check_roles(self.unmasked_roles, "unmasked_roles")
        if self.default_roles and self.tokens_file is None:
            raise InvalidSettings(
                "callers without a token have all rights while there is no access control: set tokens_file too",
                "default_roles",
            )
        self._check_masks("masked_queues", self.masked_queues, check_pattern)
        self._check_masks("masked_fields", self.masked_fields, parse_field)
        self._check_quotas()

    def _check_masks(self, field: str, given: tuple[str, ...], check: Callable[[str], object]) -> None:
        if given and self.tokens_file is None:
            raise InvalidSettings(
                "every caller sees all bodies while there is no access control: set tokens_file too", field
            )
        try:
            for text in given:
                check(text)
        except ValueError as error:
            raise InvalidSettings(str(error), field) from None

    def _check_quotas(self) -> None:
        for name in ("token_max_bytes_in_flight", "no_token_max_bytes_in_flight"):
            try:
                check_bytes(getattr(self, name))
            except ValueError as error:
                raise InvalidSettings(str(error), name) from None
        if self.tokens_file is None and any((*self.each_token, *self.without_token)):
            raise InvalidSettings("quotas need access control: set tokens_file too", "tokens_file")

    @property
    def each_token(self) -> Quota:
        """The quota of a token where the file does not say."""
        return Quota(self.token_max_connections, self.token_max_polls, self.token_max_bytes_in_flight)

    @property
    def without_token(self) -> Quota:
        """The quota of all callers without a token together."""
        return Quota(self.no_token_max_connections, self.no_token_max_polls, self.no_token_max_bytes_in_flight)

    @property
    def roles_without_token(self) -> tuple[Role, ...]:
        return tuple(Role(role) for role in self.default_roles)

    @property
    def masks(self) -> BodyMasks:
        shown_to = [Role(role) for role in self.unmasked_roles]
        return BodyMasks(self.masked_queues, self.masked_fields, shown_to, texts=self.masked_texts)


def _check_roles(roles: tuple[str, ...], field: str) -> None:
    unknown = [role for role in roles if role not in {known.value for known in Role}]
    if unknown:
        raise InvalidSettings(
            f"{unknown[0]!r} is not a role; the roles are {', '.join(role.value for role in Role)}", field
        )

"""Settings of access control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pinlater.domain.access import Role, check_pattern
from pinlater.domain.body_masks import BodyMasks, parse_field
from pinlater.domain.invalid_settings import InvalidSettings


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What callers may do. [Control access](../how-to/access.md) explains it."""

    # The file of tokens, which `pinlater token` edits. Looked at again every second. Not set: there is no access control.
    tokens_file: Path | None = None
    # Roles of callers without a token: any of read, produce, work, operate, admin. Empty: they are refused.
    default_roles: tuple[str, ...] = ()
    # Allows a server without access control to listen beyond loopback.
    insecure: bool = False
    # Patterns of the queues whose bodies are masked in look-ups: `mail*`.
    masked_queues: tuple[str, ...] = ()
    # Whether errors, custom status and progress of jobs of these queues are masked too: they may quote bodies.
    masked_texts: bool = True
    # Fields of JSON bodies that are masked in look-ups, in all queues or in those of a pattern: `password`, `card.number`, `mail*:to`.
    masked_fields: tuple[str, ...] = ()
    # Roles that see bodies without masks.
    unmasked_roles: tuple[str, ...] = (Role.ADMIN.value,)

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

    @property
    def roles_without_token(self) -> tuple[Role, ...]:
        """The roles of callers without a token."""
        return tuple(Role(role) for role in self.default_roles)

    @property
    def masks(self) -> BodyMasks:
        """The masks of bodies."""
        shown_to = [Role(role) for role in self.unmasked_roles]
        return BodyMasks(self.masked_queues, self.masked_fields, shown_to, texts=self.masked_texts)


def _check_roles(roles: tuple[str, ...], field: str) -> None:
    unknown = [role for role in roles if role not in {known.value for known in Role}]
    if unknown:
        raise InvalidSettings(f"{unknown[0]!r} is no role; roles are {', '.join(role.value for role in Role)}", field)

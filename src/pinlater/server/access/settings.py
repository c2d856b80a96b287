"""Settings of access control."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pinlater.domain.access import Role
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

    def __post_init__(self) -> None:
        unknown = [role for role in self.default_roles if role not in {known.value for known in Role}]
        if unknown:
            raise InvalidSettings(
                f"{unknown[0]!r} is no role; roles are {', '.join(role.value for role in Role)}", "default_roles"
            )
        if self.default_roles and self.tokens_file is None:
            raise InvalidSettings(
                "callers without a token have all rights while there is no access control: set tokens_file too",
                "default_roles",
            )

    @property
    def roles_without_token(self) -> tuple[Role, ...]:
        """The roles of callers without a token."""
        return tuple(Role(role) for role in self.default_roles)

"""The caller's rights: tokens to grants, with one dictionary lookup for a token that was seen before.

A secret is looked up by its SHA-256, so the time of a lookup reveals nothing about the existing secrets. Secrets that were once accepted
are remembered until the tokens change, so at most as many are remembered as there are tokens.

The use of this server by the callers with a token is kept across such changes, by the digest of the token. While there is no quota,
`has_quotas` is False, and listeners count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pinlater.domain.access import ALL_QUEUES, Role, allowed, digest_of, matches, needed_for
from pinlater.domain.body_masks import NO_MASKS, BodyMasks
from pinlater.domain.caller_names import NO_TOKEN, USER_RULE, is_user_name, spoken_for
from pinlater.domain.errors import AccessDenied, TokenInvalid, TokenRequired
from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX
from pinlater.domain.refusals import Refusals
from pinlater.server.access.quotas import NO_QUOTA, Quota, TokenUse, any_quota
from pinlater.server.access.tokens import Token
from pinlater.wire.generated.structs import CallerRights

_SECRET_LENGTH_MAX = 512
_QUEUES_REMEMBERED_MAX = 1_000


class Grant:
    """What one token allows, or, with an empty `name`, what callers without a token may do.

    `allowed` has methods and variants (`domain.access`); `all_queues`: the queue names of a call need no check. `masks`: those that apply
    to the caller, or None if it sees all bodies. `speaks_for_others`: it may name the user that it acts for. `use`: what its callers use
    at the moment.
    """

    def __init__(self, token: Token, use: TokenUse | None = None, masks: BodyMasks = NO_MASKS) -> None:
        self.name, self.digest, self.roles = token.name, token.digest, token.roles
        self.use = use or TokenUse(token.name)
        self.allowed = allowed(token.roles)
        self.all_queues = ALL_QUEUES in token.queues
        self.expires_at_ms = token.expires_at_ms
        self.speaks_for_others = token.speaks_for_others
        self.masks = masks if masks.hide_from(token.roles) else None
        self.used = False  # since the last look
        self._patterns = token.queues
        self._good: set[str] = set()

    @property
    def rights(self) -> CallerRights:
        """Returns the rights of the caller, in the form in which the caller gets them."""
        roles = [role.value for role in self.roles]
        return CallerRights(
            self.name or None, roles, self._patterns, self.expires_at_ms, self.speaks_for_others or None
        )

    def who(self, user: str | None) -> str:
        """Returns the name of a caller that acts for `user`, which counts only if the token may act for others. Raises AccessDenied for
        an invalid name.
        """
        name = self.name or NO_TOKEN
        if not user or not self.speaks_for_others:
            return name
        if not is_user_name(user):
            raise AccessDenied(f"token {self.name} asks for a user whose name is none: {USER_RULE}")
        return spoken_for(name, user)

    def has_queue(self, queue: str) -> bool:
        """Returns whether the patterns allow that queue."""
        if self.all_queues or queue in self._good:
            return True
        if not matches(self._patterns, queue):
            return False
        if len(self._good) < _QUEUES_REMEMBERED_MAX and len(queue) <= QUEUE_NAME_CHARS_MAX:
            self._good.add(queue)
        return True

    def check_roles(self, name: str) -> None:
        """Raises AccessDenied unless the roles allow the method or variant `name`."""
        if name in self.allowed:
            return
        needed = f"needs the role {needed_for(name)}"
        if not self.name:
            raise TokenRequired(f"{name} {needed}, and a call without a token does not have it; send a token")
        held = ", ".join(role.value for role in self.roles)
        raise AccessDenied(f"{name} {needed}; token {self.name} has {held}")

    def check_queues(self, name: str, queues: Iterable[str]) -> None:
        """Raises AccessDenied for the first queue that the patterns do not allow. '' stands for all queues."""
        for queue in queues:
            if not self.has_queue(queue):
                named = f"queue {queue[:200]!r}" if queue else "all queues"
                raise AccessDenied(
                    f"{name}: token {self.name} is not for {named}, only for {', '.join(self._patterns)}"
                )


class AccessControl:
    """The access control of one server. `monotonic` gives seconds, `now_ms` the time of day. `masks`: of bodies.

    `each_token`: the quota of a token for which the file names none. `without_token`: the joint quota of all callers without a token.
    """

    def __init__(
        self,
        tokens: Iterable[Token],
        default_roles: Sequence[Role],
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        masks: BodyMasks = NO_MASKS,
        *,
        each_token: Quota = NO_QUOTA,
        without_token: Quota = NO_QUOTA,
    ) -> None:
        self._now_ms = now_ms
        self._masks = masks
        self._each_token = each_token
        self._without_token = Grant(Token("", "", tuple(default_roles)), TokenUse("", without_token), masks)
        self.refusals = Refusals(monotonic)
        self._grants: dict[str, Grant] = {}
        self._uses: dict[str, TokenUse] = {}  # by digest, also of removed tokens while their callers are connected
        self.replace(tokens)

    @property
    def has_tokens(self) -> bool:
        """Whether there are any tokens."""
        return bool(self._grants)

    def replace(self, tokens: Iterable[Token]) -> None:
        """Replaces the tokens: from now on only these are valid, and their quotas apply, also on open connections."""
        before, self._grants = self._grants, {}
        self._uses = {digest: use for digest, use in self._uses.items() if digest in before or use.is_in_use}
        for use in self._uses.values():
            use.quota = NO_QUOTA
        for token in tokens:
            use = self._uses.setdefault(token.digest, TokenUse(token.name))
            use.name, use.quota = token.name, token.quota.over(self._each_token)
            grant = Grant(token, use, self._masks)
            grant.used = token.digest in before and before[token.digest].used
            self._grants[token.digest] = grant
        self._known: dict[str, Grant] = {"": self._without_token}
        self.has_quotas = any_quota(self.uses())

    def grant_of(self, secret: str) -> Grant:
        """Returns what the caller with that secret may do; '' is a caller without a token. Raises TokenInvalid."""
        grant = self._known.get(secret)
        if grant is None:
            grant = self._look_up(secret)
        if grant.expires_at_ms is not None and self._now_ms() >= grant.expires_at_ms:
            raise TokenInvalid(f"Token {grant.name} has expired; `pinlater token create` makes another one")
        grant.used = True
        return grant

    def _look_up(self, secret: str) -> Grant:
        grant = self._grants.get(digest_of(secret)) if len(secret) <= _SECRET_LENGTH_MAX else None
        if grant is None:
            raise TokenInvalid(
                "This server does not know the token: it was revoked, is for other servers, or was not copied whole"
            )
        self._known[secret] = grant
        return grant

    def use_of(self, secret: str) -> TokenUse | None:
        """Returns the current use of the callers with that secret, or None if their calls are refused."""
        try:
            return self.grant_of(secret).use
        except TokenInvalid:
            return None

    def uses(self) -> Iterator[TokenUse]:
        """Yields the use of the callers: first of those without a token, then by token."""
        yield self._without_token.use
        for grant in self._grants.values():
            yield grant.use

    @property
    def digests(self) -> frozenset[str]:
        return frozenset(self._grants)

    def take_used(self) -> Mapping[str, int]:
        """The digests of the tokens that were used since the last call of this function, each with the current time."""
        now_ms = self._now_ms()
        used = {}
        for grant in self._grants.values():
            if grant.used:
                grant.used = False
                used[grant.digest] = now_ms
        return used

"""Quotas as values: what applies to a token, what still fits, and what stays when the file of tokens changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinlater.client.errors import QuotaExceeded, error_for
from pinlater.domain.access import Role, digest_of
from pinlater.domain.byte_budget import SMALL_FRAME_BYTES, ByteBudget
from pinlater.domain.errors import TooManyWaiting
from pinlater.domain.invalid_settings import InvalidSettings
from pinlater.server.access.control import AccessControl
from pinlater.server.access.quotas import (
    BEYOND_LEAST,
    BYTES_LEAST,
    NO_QUOTA,
    OwnQuota,
    Quota,
    TokenUse,
    check_bytes,
)
from pinlater.server.access.settings import AccessSettings
from pinlater.server.access.tokens import Token, parse_tokens, tokens_text
from pinlater.server.main.file_changes import token_changes
from pinlater.server.thrift.connection_use import ConnectionUse

SECRET = "pinlater_secret"
TOKEN = Token("billing", digest_of(SECRET), (Role.WORK,))
MIB = 2**20


def control(*tokens: Token, each_token: Quota = NO_QUOTA, without_token: Quota = NO_QUOTA) -> AccessControl:
    return AccessControl(tokens, (), lambda: 0, lambda: 0.0, each_token=each_token, without_token=without_token)


def use_of(access: AccessControl, secret: str = SECRET) -> TokenUse:
    use = access.use_of(secret)
    assert use is not None
    return use


# --- which quota applies --------------------------------------------------------------------------------------------------
def test_what_the_file_does_not_say_is_as_the_server_says_and_0_is_no_bound() -> None:
    assert OwnQuota(None, 0, 5).over(Quota(1, 2, 3)) == Quota(1, 0, 5)
    assert OwnQuota().over(NO_QUOTA) == NO_QUOTA


def test_callers_without_a_token_have_a_quota_of_their_own() -> None:
    access = control(TOKEN, each_token=Quota(1), without_token=Quota(2))
    assert (use_of(access).quota, use_of(access, "").quota) == (Quota(1), Quota(2))
    assert [use.name for use in access.uses()] == ["", "billing"]


def test_access_control_says_whether_there_is_any_quota() -> None:
    """So that listeners count nothing as long as there is none."""
    assert not control(TOKEN).has_quotas
    assert control(TOKEN, each_token=Quota(polls=1)).has_quotas
    assert control(without_token=Quota(connections=1)).has_quotas
    access = control(TOKEN)
    access.replace([TOKEN._replace(quota=OwnQuota(polls=1))])
    assert access.has_quotas
    access.replace([TOKEN])
    assert not access.has_quotas


def test_a_change_of_the_file_changes_the_quota_and_keeps_what_is_used() -> None:
    """Also under another name: what counts is the secret."""
    access = control(TOKEN._replace(quota=OwnQuota(10)))
    use = use_of(access)
    use.connections = 7
    access.replace([TOKEN._replace(name="renamed", quota=OwnQuota(3))])
    assert use_of(access) is use
    assert (use.name, use.connections, use.quota, use.takes_connection()) == ("renamed", 7, Quota(3), False)


def test_a_new_token_with_the_name_of_an_old_one_begins_with_nothing() -> None:
    access = control(TOKEN._replace(quota=OwnQuota(10)))
    old = use_of(access)
    old.connections = 10
    access.replace([TOKEN._replace(digest=digest_of("another"))])
    assert use_of(access, "another").connections == 0
    assert access.use_of(SECRET) is None
    assert old.quota == NO_QUOTA


def test_a_token_that_is_removed_and_added_again_keeps_what_its_open_connections_use() -> None:
    """As when a deployment writes the file twice: its callers would have twice the quota otherwise."""
    limited = TOKEN._replace(quota=OwnQuota(10))
    access = control(limited)
    use = use_of(access)
    use.connections = 10
    for _ in range(3):
        access.replace([])
        assert (access.use_of(SECRET), use.quota) == (None, NO_QUOTA)
    access.replace([limited])
    assert use_of(access) is use
    assert (use.quota, use.takes_connection()) == (Quota(10), False)


@pytest.mark.parametrize("counted", ["connections", "connections_beyond", "polls", "bytes_held"])
def test_a_removed_token_is_remembered_only_while_it_is_in_use(counted: str) -> None:
    access = control(TOKEN)
    use = use_of(access)
    setattr(use, counted, 1)
    access.replace([])
    access.replace([])
    setattr(use, counted, 0)
    access.replace([])
    access.replace([TOKEN])
    assert use_of(access) is not use


# --- what fits ------------------------------------------------------------------------------------------------------------
def test_connections_and_polls_fit_up_to_their_bounds() -> None:
    use = TokenUse("billing", Quota(2, 1))
    use.connections = use.polls = 1
    assert (use.takes_connection(), use.takes_poll()) == (True, False)
    use.connections = 2
    assert not use.takes_connection()
    unbounded = TokenUse("billing")
    unbounded.connections = unbounded.polls = 10**6
    assert (unbounded.takes_connection(), unbounded.takes_poll()) == (True, True)


@pytest.mark.parametrize(("quota", "most"), [(1, BEYOND_LEAST), (1_000, 1_000)])
def test_as_many_connections_again_may_count_beyond_the_quota(quota: int, most: int) -> None:
    use = TokenUse("billing", Quota(quota))
    use.connections, use.connections_beyond = quota, most - 1
    assert use.takes_connection_beyond()
    use.connections_beyond = most
    assert not use.takes_connection_beyond()


def test_reports_have_a_quarter_more_bytes_and_small_ones_always_fit() -> None:
    use = TokenUse("billing", Quota(bytes_in_flight=MIB))
    large, small = 100_000, SMALL_FRAME_BYTES
    assert use.takes_bytes(MIB, large, is_report=False)
    assert not use.takes_bytes(MIB + 1, large, is_report=False)
    assert not use.takes_bytes(MIB + 1, small, is_report=False)
    assert use.takes_bytes(MIB + MIB // 4, large, is_report=True)
    assert not use.takes_bytes(MIB + MIB // 4 + 1, large, is_report=True)
    assert use.takes_bytes(100 * MIB, small, is_report=True)
    assert not use.takes_bytes(0, MIB + 1, is_report=False), "a request that is longer than the quota never fits"
    assert TokenUse("billing").takes_bytes(100 * MIB, 100 * MIB, is_report=False)


# --- one connection -------------------------------------------------------------------------------------------------------
def connection(token: TokenUse, held_bytes: int = 0) -> tuple[ByteBudget, ConnectionUse]:
    budget = ByteBudget(10 * MIB)
    budget.free_bytes -= held_bytes
    return budget, ConnectionUse(budget, token, held_bytes, ended=False)


def test_what_a_connection_counts_counts_in_the_budget_and_for_its_token() -> None:
    first, second = TokenUse("a"), TokenUse("b")
    budget, use = connection(first, 100)
    use.free_bytes -= 50
    use.hold_answer(1_000)
    assert (first.bytes_held, budget.request_bytes, budget.answer_bytes) == (1_150, 150, 1_000)
    use.move_bytes(second)
    assert (first.bytes_held, second.bytes_held) == (0, 1_150)
    use.hold_answer(-1_000)
    use.free_bytes += 150
    assert (second.bytes_held, budget.free_bytes) == (0, 10 * MIB)


def test_a_connection_counts_for_the_token_of_its_latest_request_also_beyond_its_quota() -> None:
    """A console shares its connections: while one of them carries requests of another caller, it must not count for the first one."""
    first, second = TokenUse("a", Quota(1)), TokenUse("b", Quota(1))
    _, use = connection(first)
    assert use.takes(is_report=False)
    use.move_bytes(second)
    assert use.takes(is_report=False)
    assert (first.connections, second.connections) == (0, 1)
    first.connections = 1
    use.move_bytes(first)
    assert use.takes(is_report=False), "it is open already"
    assert (first.connections, first.connections_beyond, second.connections) == (1, 1, 0)
    first.connections = 0
    assert use.takes(is_report=False)
    assert (first.connections, first.connections_beyond) == (1, 0)
    use.end()
    assert first.connections == 0


def test_connections_that_are_taken_over_are_bounded_and_the_next_ones_stay_with_their_token() -> None:
    """A caller with two tokens would have no bound otherwise."""
    full, other = TokenUse("a", Quota(1)), TokenUse("b", Quota(1))
    full.connections, full.connections_beyond = 1, BEYOND_LEAST
    _, use = connection(other)
    assert use.takes(is_report=False)
    use.move_bytes(full)
    assert use.takes(is_report=False)
    assert (use.counts_for, other.connections, full.connections_beyond) == (other, 1, BEYOND_LEAST)


def test_a_connection_beyond_the_quota_carries_reports_only_until_there_is_space() -> None:
    token, other = TokenUse("a", Quota(1)), TokenUse("b", Quota(1))
    token.connections = other.connections = 1
    _, use = connection(token)
    assert not use.takes(is_report=False)
    assert use.takes(is_report=True)
    assert (token.connections, token.connections_beyond) == (1, 1)
    assert not use.takes(is_report=False)
    use.move_bytes(other)
    assert not use.takes(is_report=False), "another token without space gains nothing by it"
    use.move_bytes(token)
    token.connections = 0
    assert use.takes(is_report=False)
    assert (token.connections, token.connections_beyond) == (1, 0)


def test_a_connection_that_has_ended_counts_for_no_token() -> None:
    token = TokenUse("a", Quota(1))
    _, use = connection(token)
    use.takes(is_report=False)
    use.end()
    use.end()
    assert use.takes(is_report=False), "its last request may go on"
    assert token.connections == 0


# --- files and settings ---------------------------------------------------------------------------------------------------
def test_quotas_come_back_from_the_file_as_they_were() -> None:
    tokens = (TOKEN._replace(quota=OwnQuota(10, 0, BYTES_LEAST)), TOKEN._replace(name="b", digest="1" * 64))
    assert parse_tokens(tokens_text(tokens).encode()) == tokens


def test_a_token_without_a_quota_is_written_as_servers_without_quotas_read_it() -> None:
    assert "max_" not in tokens_text([TOKEN])


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_connections", -1), ("max_polls", "5"), ("max_polls", True), ("max_bytes_in_flight", BYTES_LEAST - 1)],
)
def test_a_file_with_a_wrong_quota_is_refused_as_a_whole(field: str, value: object) -> None:
    document = json.loads(tokens_text([TOKEN]))
    document["tokens"][0][field] = value
    with pytest.raises(ValueError, match=r"tokens\[0\]"):
        parse_tokens(json.dumps(document).encode())


def test_a_changed_quota_is_in_the_audit() -> None:
    [change] = token_changes([TOKEN], [TOKEN._replace(quota=OwnQuota(polls=5))], 1)
    assert (change.operation, change.fields["max_polls"]) == ("tokenChanged", 5)


def test_settings_with_quotas_need_a_file_of_tokens_and_bytes_that_a_server_can_work_with() -> None:
    path = Path("tokens.json")
    settings = AccessSettings(path, token_max_polls=5, no_token_max_connections=3)
    assert (settings.each_token, settings.without_token) == (Quota(polls=5), Quota(3))
    with pytest.raises(InvalidSettings, match="tokens_file"):
        AccessSettings(token_max_polls=5)
    with pytest.raises(InvalidSettings, match="too few"):
        AccessSettings(path, no_token_max_bytes_in_flight=1)
    assert check_bytes(0) == 0


def test_clients_that_slow_down_when_a_server_has_too_much_to_do_slow_down_at_a_quota() -> None:
    for detail in ("QUOTA_EXCEEDED", "CONNECTION_QUOTA_EXCEEDED"):
        error = error_for(500, "used up", detail, True, 1_000)
        assert isinstance(error, QuotaExceeded)
        assert isinstance(error, TooManyWaiting)
        assert (error.retryable, error.retry_after_ms) == (True, 1_000)

"""How many log-ins of an address are under way at once: one that is under way long enough to be counted would need a slow server."""

from __future__ import annotations

import pytest

from pinlater.console.pages import login
from pinlater.console.problems import RequestRefused
from tests.console.pages.guarded import GuardedConsole


async def test_an_address_has_a_bounded_number_of_log_ins_under_way(guarded: GuardedConsole) -> None:
    logins = login.Logins(None, lambda: 0)  # type: ignore[arg-type] # no log-in gets that far
    places = [logins._place("10.0.0.1") for _ in range(login.AT_ONCE_MAX)]
    for place in places:
        place.__enter__()
    with pytest.raises(RequestRefused), logins._place("10.0.0.1"):
        pass
    with logins._place("10.0.0.2"):
        pass
    places[0].__exit__(None, None, None)
    with logins._place("10.0.0.1"):
        pass

"""The client sends the recorded bytes, and makes the recorded values of the recorded answers."""

from __future__ import annotations

import difflib

from tests.wire.golden.client_calls import CALLS
from tests.wire.golden.client_side import VALUES, made_values, sent_requests
from tests.wire.golden.exchange import SENT, read_scenario
from tests.wire.golden.idl import METHODS
from tests.wire.golden.replay import request_differences


async def test_a_client_sends_the_recorded_bytes() -> None:
    """Servers of other versions read them."""
    differences = request_differences(read_scenario(SENT), await sent_requests())
    assert not differences, "\n\n".join(["", *differences])


def test_each_method_that_a_program_can_call_is_recorded() -> None:
    """The client itself asks for the owners of queues."""
    assert METHODS.keys() - {call.method for call in CALLS} == {"getQueueOwners"}


async def test_a_client_makes_the_recorded_values_of_recorded_answers() -> None:
    """Programs read these fields."""
    recorded, made = VALUES.read_text().splitlines(), await made_values()
    difference = difflib.unified_diff(recorded, made, VALUES.name, "now", lineterm="")
    assert recorded == made, "\n".join(difference)

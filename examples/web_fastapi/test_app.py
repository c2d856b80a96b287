"""The application and its worker on a service in the process of the test."""

from __future__ import annotations

import app
import pytest
from tasks import Signup, welcome, worker

from pinlater import JobState
from pinlater.testing import InProcessService


@pytest.mark.asyncio
async def test_who_signs_up_is_welcomed_once(
    pinlater_service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tasks enqueue through `serving`. The application opens a client of its own: here, one of the service.
    monkeypatch.setattr(app, "AsyncClient", pinlater_service.async_client)
    ada = Signup(mail="ada@example.org", name="Ada")
    with pinlater_service.serving(worker):
        async with app.lifespan(app.app):
            first = await app.sign_up(ada)
            assert (await app.sign_up(ada))["new"] is False
            pinlater_service.assert_enqueued(welcome, ada)
            await pinlater_service.run_until_idle()
            assert pinlater_service.job(str(first["job"])).state is JobState.SUCCEEDED

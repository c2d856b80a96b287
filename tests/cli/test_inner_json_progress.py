"""Progress in JSON, without the seconds for which the commands would have to run before they show any."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.cli.commands.bench import load
from pinlater.cli.commands.server.import_original.progress import Progress
from pinlater.cli.load_generator import LoadMode, LoadPlan, Meter
from pinlater.import_original.copy import CopyCounts
from tests.cli.test_json_errors import documents


@pytest.mark.usefixtures("as_json")
def test_the_rates_of_load_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = LoadPlan(LoadMode.ENQUEUE, "emails", -1, 1, 1, 100, None, 1)
    asyncio.run(load._show(Meter(), plan))  # ends by itself, where it otherwise shows rates until it is cancelled
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("as_json")
def test_the_progress_of_an_import_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    class Table:
        name = "emails_p1"

    progress = Progress()
    progress._next = 0.0
    progress.show(Table(), CopyCounts(3, 2, 1))  # type: ignore[arg-type]
    progress.close()
    assert documents(capsys.readouterr().err) == [{"note": "emails_p1: 2 copied, 1 there already, 0 left"}]

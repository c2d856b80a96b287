"""What `python -m bench` says to a row that the store does not have. Nothing is measured."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.__main__ import ROWS, run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says on stderr; it ends with 2."""
    with pytest.raises(SystemExit, match="2"):
        run(arguments, Console(file=io.StringIO()))
    return capsys.readouterr().err


@pytest.mark.parametrize("store", [(), ("--store", "sqlite")])
def test_a_row_of_other_stores_names_the_commands_that_measure_it(
    capsys: pytest.CaptureFixture[str], store: tuple[str, ...]
) -> None:
    assert refused(capsys, *store, "--only", "cluster") == (
        "the row cluster is not measured with sqlite: "
        'make bench STORE=mysql ARGS="--only cluster" or make bench STORE=redis ARGS="--only cluster"\n'
    )


def test_each_row_that_the_store_does_not_have_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    only = [word for name in ("garbage", "pickup", "memory", "garbage") for word in ("--only", name)]
    assert refused(capsys, *only).splitlines() == [
        'the row garbage is not measured with sqlite: make bench STORE=mysql ARGS="--only garbage"',
        'the row memory is not measured with sqlite: make bench STORE=redis ARGS="--only memory"',
    ]


def test_a_row_that_there_is_not_is_answered_with_those_of_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "--store", "redis", "--only", "enqueue")
    assert said == f"there is no row enqueue; rows with redis: {', '.join(ROWS['redis'])}\n"

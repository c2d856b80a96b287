"""When a supervisor starts again what has ended, and which files it takes for a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinlater.supervision.restarts import Next, next_start
from pinlater.worker._supervisor.file_changes import changed, look


@pytest.mark.parametrize("code", [0, 75])
def test_what_was_recycled_or_ended_in_order_is_replaced_at_once(code: int) -> None:
    assert next_start(code, 5.0, 3, True, 0.5, (0, 75)) == Next(0.0, 0)


def test_what_crashes_again_and_again_is_replaced_ever_later() -> None:
    delays, crashes = [], 0
    for _ in range(10):
        delay_s, crashes = next_start(-9, 0.1, crashes, True, 1.0)
        delays.append(delay_s)
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


def test_waits_are_spread_and_who_lived_long_starts_afresh() -> None:
    assert next_start(1, 0.1, 6, True, 0.0) == Next(15.0, 7)
    assert next_start(1, 61.0, 6, True, 1.0) == Next(0.5, 1)


def test_one_that_ends_at_once_is_not_spun_on_whatever_its_code() -> None:
    assert next_start(75, 0.1, 0, True, 1.0, (0, 75)) == Next(0.5, 1)


def test_a_wrong_module_is_given_up_unless_it_was_right_before() -> None:
    assert next_start(2, 1.0, 0, False, 1.0).delay_s is None
    assert next_start(2, 1.0, 0, True, 1.0) == Next(0.5, 1)


def test_python_files_of_ones_own_are_looked_at(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", "c.txt", ".venv/d.py", "node_modules/e.py", "sub/__pycache__/f.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before = look(tmp_path)
    assert sorted(os.path.relpath(path, tmp_path) for path in before) == ["a.py", "sub/b.py"]
    (tmp_path / "a.py").write_text("12")
    (tmp_path / "sub/b.py").unlink()
    (tmp_path / "new.py").write_text("1")
    after = look(tmp_path)
    assert changed(before, after) == [str(tmp_path / name) for name in ("a.py", "new.py", "sub/b.py")]
    assert changed(after, after) == []

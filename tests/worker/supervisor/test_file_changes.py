"""Which files count as a change of the program."""

from __future__ import annotations

import os
from pathlib import Path

from pinlater.worker._supervisor.file_changes import changed, look


def test_python_files_outside_of_environments_are_watched(tmp_path: Path) -> None:
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

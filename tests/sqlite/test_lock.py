"""One server, one file."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.commands import ListQueues
from pinlater.server.storage.sqlite.backup import backup
from pinlater.server.storage.sqlite.shard import SqliteShard
from tests.sqlite.conftest import NOW, Bench


async def test_a_second_server_on_the_same_file_is_refused_by_name_and_pid(bench: Bench) -> None:
    second = SqliteShard(bench.path)
    with pytest.raises(
        ShardConnectionFailed, match=rf"jobs\.db is in use by another process \(pid {os.getpid()}"
    ) as refused:
        await second.open(NOW)
    assert not refused.value.retryable
    await second.close()
    assert await bench.insert()  # and the first one never noticed


_OPEN = """
import asyncio, pathlib, sys
from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.sqlite.shard import SqliteShard
async def main():
    try:
        await SqliteShard(pathlib.Path(sys.argv[1])).open(0)
    except PinLaterError as error:
        print(error.detail, error.message)
    else:
        print("OPENED")
asyncio.run(main())
"""


async def opened_by_another_process(path: Path, *before: str) -> str:
    """What a server of its own says that opens the store there."""
    command = [*before, sys.executable, "-c", _OPEN, str(path)]
    ended = await asyncio.to_thread(subprocess.run, command, check=True, timeout=60, capture_output=True, text=True)
    return str(ended.stdout)


def modes(folder: Path) -> dict[str, int]:
    """Which process may do what with the files of a folder."""
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_hard_link_is_the_same_store(bench: Bench, tmp_path: Path, elsewhere: bool) -> None:
    """Two servers under two names would each have a write-ahead log of its own for one file."""
    await bench.insert(3)
    folder = tmp_path / "elsewhere" if elsewhere else tmp_path
    folder.mkdir(exist_ok=True)
    link = folder / "other-name.db"
    os.link(bench.path, link)
    assert "STORE_IN_USE" in await opened_by_another_process(link)
    with pytest.raises(ShardConnectionFailed, match="in use"):
        await SqliteShard(link).open(NOW)  # in the same process, where the kernel would let us drop our own locks
    assert "STORE_IN_USE" in await opened_by_another_process(link), "the refused one took no lock away"
    await bench.insert(3)
    await bench.shard.close()
    assert await opened_by_another_process(link) == "OPENED\n"


async def test_a_bind_mount_is_the_same_store(bench: Bench, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted.db"
    mounted.touch()
    mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-c", mount, "sh", str(bench.path), str(mounted)]
    probe = await asyncio.to_thread(subprocess.run, [*inside, "true"], check=False, timeout=60, capture_output=True)
    if probe.returncode:
        pytest.skip("this machine lets us make no bind mount")
    assert "STORE_IN_USE" in await opened_by_another_process(mounted, *inside)


async def test_with_its_lock_file_deleted_the_store_still_has_one_server_which_says_what_is_wrong(bench: Bench) -> None:
    lock = bench.path.with_name("jobs.db-lock")
    kept = lock.rename(lock.with_name("kept"))
    assert "STORE_IN_USE" in await opened_by_another_process(bench.path)
    for _ in range(2):
        with pytest.raises(ShardConnectionFailed, match=r"jobs\.db-lock is gone") as gone:
            await bench.insert()
        assert gone.value.detail == "STORE_GONE"
        with pytest.raises(ShardConnectionFailed, match="is gone"):
            await bench.shard.ping()
    lock.touch()
    with pytest.raises(ShardConnectionFailed, match="another one has taken its place"):
        await bench.insert()
    kept.replace(lock)
    assert await bench.insert()


async def test_a_symbolic_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    """Any user who may write the folder could have us write to any file of ours."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "jobs.db-lock").symlink_to(victim)
    with pytest.raises(ShardConnectionFailed, match="symbolic link"):
        await SqliteShard(tmp_path / "jobs.db").open(NOW)
    assert victim.read_text() == "precious"


async def test_a_store_is_opened_by_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").symlink_to(tmp_path / "real.db")
    bench = Bench(tmp_path / "jobs.db")
    for _ in range(2):
        await bench.open()
        assert await bench.insert()
        await bench.shard.close()
    assert (tmp_path / "real.db").exists()


async def test_only_the_owner_may_read_what_the_store_writes(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        bench = Bench(tmp_path / "jobs.db")
        await bench.open()
        await bench.insert()
        await asyncio.to_thread(backup, bench.path, tmp_path / "copy.db")
        made = modes(tmp_path)
        await bench.shard.close()
    finally:
        os.umask(before)
    assert {"jobs.db", "jobs.db-wal", "jobs.db-lock", "copy.db"} <= made.keys()
    assert set(made.values()) == {0o600}, made


async def test_the_rights_of_a_file_that_is_there_stay_as_they_are(bench: Bench) -> None:
    """Its owner may have chosen them, for a group that makes backups."""
    await bench.shard.close()
    bench.path.chmod(0o640)
    await bench.open()
    assert modes(bench.path.parent)["jobs.db"] == 0o640


async def test_the_lock_goes_with_the_shard(bench: Bench) -> None:
    await bench.shard.close()
    second = SqliteShard(bench.path)
    await second.open(NOW)
    await second.close()


async def test_a_killed_server_leaves_no_lock(tmp_path: Path) -> None:
    """The kernel drops it, however the process ends; the file may stay."""
    path = tmp_path / "jobs.db"
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from pinlater.server.storage.sqlite.shard import SqliteShard\n"
        "async def main():\n"
        f"    await SqliteShard(pathlib.Path({str(path)!r})).open(0)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False, timeout=30)
    assert killed.returncode == -9
    assert path.with_name("jobs.db-lock").exists()
    shard = SqliteShard(path)
    await shard.open(NOW)
    await shard.close()


async def test_a_missing_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ShardConnectionFailed, match="folder"):
        await SqliteShard(tmp_path / "nowhere" / "jobs.db").open(NOW)


async def test_a_shard_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShardConnectionFailed, match="not open"):
        await SqliteShard(tmp_path / "jobs.db").submit(ListQueues())


async def test_closing_twice_is_once(bench: Bench) -> None:
    await bench.shard.close()
    await bench.shard.close()

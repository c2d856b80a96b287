"""What others can see of a command line that has a password in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHOW = """\
import sys
from pinlater.cli.hide_passwords import hide_passwords
hide_passwords()
sys.stdout.write(open("/proc/self/cmdline").read().replace("\\0", "\\n") + "|" + "\\n".join(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="where arguments are is known on Linux only")
@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["--store", "mysql://u:se@c/ret@db/x"], ["--store", "mysql://u:xxxxxxxx@db/x"]),
        (["--store=mysql://:word@db/x"], ["--store=mysql://:xxxx@db/x"]),
        (["--set", "store=MySQL://u:word@db"], ["--set", "store=MySQL://u:xxxx@db"]),
        (["--set", "mysql.password=word"], ["--set", "mysql.password=xxxx"]),
        (["--set=mysql-password=wörd"], ["--set=mysql-password=xxxxx"]),
        (["--set", " mysql.password = word"], ["--set", " mysql.password =xxxxx"]),
        (["--mysql-password=word"], ["--mysql-password=xxxx"]),
        (["--store", "mysql://u@db/x", "--set", "mysql.user=word"], None),
        (["--store", "mysql:shards.json"], None),
        ([], None),
    ],
)
def test_passwords_are_written_over_and_nothing_else(given: list[str], seen: list[str] | None) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW, *given], capture_output=True, text=True, check=True)
    shown, _, told = done.stdout.rpartition("|")
    assert shown.splitlines()[-len(given) :] == (given if seen is None else seen) or not given
    assert told.splitlines() == given

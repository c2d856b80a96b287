"""What tables and blocks look like on terminals of 80, 100 and 200 columns, with and without colour."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pinlater.cli import commands, output, tables
from pinlater.cli.commands.queue import DEFAULTS_OF_TASKS
from pinlater.cli.tables import Screen, blocks_or_table, fields, narrow_table, table, wrap_line
from pinlater.cli.tree import COMMANDS, Leaf
from pinlater.domain.durations import duration_text
from pinlater.worker import Worker
from tests.cli.conftest import Pinlater, on_terminal
from tests.cli.table_samples import QUEUE, SAMPLES, WORKER

MODULES = Path(commands.__file__).parent
ANY_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PRINTS_A_TABLE = re.compile(r"\bprint_(?:table|narrow_table|blocks|rows|fields)\(|\brich\.table\b")

DESCRIPTOR = "thumbnails_of_large_pictures_that_users_upload_here:s12:p1:250427967576997888"
JOBS = ["descriptor", "task", "state", "age", "holder", "left", "due", "error", "status"]
FAILED = (
    "emails:s1:p1:250427943803682816",
    "send_welcome",
    "failed",
    "1m 15s",
    "web-3-14342",
    "0",
    "2026-11-23T01:11:26.163Z",
    "SMTPRecipientsRefused: the mailbox of a@example.org is full and takes no more messages",
    "-",
)
WAITING = (DESCRIPTOR, "make_thumbnail", "pending", "850ms", "-", "2", "2026-11-23T01:11:20.197Z", "-", "-")
STATS = ["queue", "pending", "future", "in_progress", "succeeded", "failed", "oldest", "in/s", "done/s", "failed/s"]
STATS_ROWS = [
    ("emails", "120", "3", "12", "40021", "7", "1m 11s", "3.5", "3.4", "0.0"),
    ("thumbnails", "0", "0", "0", "0", "0", "-", "0.0", "0.0", "0.0"),
]

BLOCKS_80 = """\
emails:s1:p1:250427943803682816
  task    send_welcome
  state   failed
  age     1m 15s
  holder  web-3-14342
  left    0
  due     2026-11-23T01:11:26.163Z
  error   SMTPRecipientsRefused: the mailbox of a@example.org is full and takes
          no more messages

thumbnails_of_large_pictures_that_users_upload_here:s12:p1:250427967576997888
  task   make_thumbnail
  state  pending
  age    850ms
  left   2
  due    2026-11-23T01:11:20.197Z"""
BLOCKS_100 = BLOCKS_80.replace("takes\n          no more messages", "takes no more messages")
STATS_80 = """\
queue       pending  future  in_progress  succeeded  failed  oldest  in/s
emails          120       3           12      40021       7  1m 11s   3.5
thumbnails        0       0            0          0       0  -        0.0

queue       done/s  failed/s
emails         3.4       0.0
thumbnails     0.0       0.0"""
STATS_WIDE = """\
queue       pending  future  in_progress  succeeded  failed  oldest  in/s  done/s  failed/s
emails          120       3           12      40021       7  1m 11s   3.5     3.4       0.0
thumbnails        0       0            0          0       0  -        0.0     0.0       0.0"""


def lines_of(text: str) -> list[str]:
    return text.splitlines()


@pytest.mark.parametrize(("columns", "text"), [(80, BLOCKS_80), (100, BLOCKS_100)])
def test_jobs_too_wide_for_a_table_go_one_block_each(columns: int, text: str) -> None:
    assert blocks_or_table(JOBS, [FAILED, WAITING], Screen(columns)) == lines_of(text)


def test_jobs_that_fit_go_into_a_table_without_columns_that_no_job_fills() -> None:
    short = (*FAILED[:7], "Timeout", "-")
    assert blocks_or_table(JOBS, [short], Screen(200)) == lines_of(
        "descriptor                       task          state   age     holder       left  due"
        "                       error\n"
        "emails:s1:p1:250427943803682816  send_welcome  failed  1m 15s  web-3-14342     0  2026-11-23T01:11:26.163Z"
        "  Timeout"
    )


@pytest.mark.parametrize(("columns", "text"), [(80, STATS_80), (100, STATS_WIDE), (200, STATS_WIDE)])
def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column(columns: int, text: str) -> None:
    assert table(STATS, STATS_ROWS, Screen(columns)) == lines_of(text)


SHORTER = {"in_progress": "claimed", "succeeded": "done"}
STATS_NARROW = """\
queue       pending  future  claimed   done  failed  oldest  in/s  done/s
emails          120       3       12  40021       7  1m 11s   3.5     3.4
thumbnails        0       0        0      0       0  -        0.0     0.0"""


@pytest.mark.parametrize(("columns", "text"), [(80, STATS_NARROW), (100, STATS_WIDE)])
def test_a_narrow_table_has_shorter_names_and_leaves_out_columns_that_say_nothing(columns: int, text: str) -> None:
    assert narrow_table(STATS, STATS_ROWS, Screen(columns), shorter=SHORTER) == lines_of(text)


LONG = "thumbnails_of_large_pictures_that_users_of_the_" + "mobile_application_" * 5 + "upload"
ALL_STATS = [*STATS, "waiting", "paused"]
COUNTS = ("120", "3", "12", "40021", "7", "1m 11s", "3.5", "3.4", "0.5", "0", "no")
LONG_80 = f"""\
queue   pending  future  claimed   done  failed  oldest  in/s  done/s  failed/s
emails      120       3       12  40021       7  1m 11s   3.5     3.4       0.5
{LONG}
            120       3       12  40021       7  1m 11s   3.5     3.4       0.5"""
LONG_100 = f"""\
queue   pending  future  claimed   done  failed  oldest  in/s  done/s  failed/s  waiting  paused
emails      120       3       12  40021       7  1m 11s   3.5     3.4       0.5        0  no
{LONG}
            120       3       12  40021       7  1m 11s   3.5     3.4       0.5        0  no"""
LONG_200 = f"""\
queue   pending  future  in_progress  succeeded  failed  oldest  in/s  done/s  failed/s  waiting  paused
emails      120       3           12      40021       7  1m 11s   3.5     3.4       0.5        0  no
{LONG}
            120       3           12      40021       7  1m 11s   3.5     3.4       0.5        0  no"""


@pytest.mark.parametrize(("columns", "text"), [(80, LONG_80), (100, LONG_100), (200, LONG_200)])
def test_names_too_long_for_a_narrow_table_stay_whole_on_lines_of_their_own(columns: int, text: str) -> None:
    rows = [(name, *COUNTS) for name in ("emails", LONG)]
    assert narrow_table(ALL_STATS, rows, Screen(columns), shorter=SHORTER) == lines_of(text)


def test_a_long_name_moves_no_other_name_to_a_line_of_its_own_if_columns_that_say_nothing_can_go() -> None:
    """Without the long name, the columns at the right would go for the sake of the other names, too."""
    counts = ("120", "3", "12", "4002", "7", "1m 11s", "3.5", "0.0", "0.0", "0", "no")
    names = ("emails", "emails2", "thumbnails", LONG)
    lines = narrow_table(ALL_STATS, [(name, *counts) for name in names], Screen(80), shorter=SHORTER)
    assert [line.split()[0] for line in lines] == ["queue", *names, "120"]
    assert [len(line.split()) > 1 for line in lines] == [True, True, True, True, False, True]


def test_a_narrow_table_of_more_than_two_parts_is_a_block_for_each_row() -> None:
    columns = [SHORTER.get(name, name) for name in ALL_STATS]
    rows = [(name, *COUNTS) for name in ("emails", LONG)]
    assert narrow_table(ALL_STATS, rows, Screen(60), shorter=SHORTER) == blocks_or_table(columns, rows, Screen(60))


NAMES = st.text("abc_", min_size=1, max_size=250)
_SAY_NOTHING = {"0", "0.0", "-", "no"}
FIGURES = st.tuples(*[st.sampled_from(["0", "1", "123456", "3.5", "0.0", "-", "no", "12h30m"])] * 11)


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.tuples(NAMES, FIGURES), min_size=1, max_size=5), columns=st.sampled_from([40, 80, 100, 200]))
def test_a_narrow_table_folds_no_name_loses_no_figure_and_is_no_wider_than_the_terminal(
    rows: list[tuple[str, tuple[str, ...]]], columns: int
) -> None:
    lines = narrow_table(ALL_STATS, [(name, *figures) for name, figures in rows], Screen(columns), shorter=SHORTER)
    words = " ".join(lines).split()
    for name, figures in rows:
        assert name in words
        assert set(figures) - _SAY_NOTHING <= set(words)
    assert all(cell_len(line) <= columns or line in [name for name, _ in rows] for line in lines)


def test_a_table_that_would_not_fit_without_empty_columns_either_keeps_them() -> None:
    columns = [SHORTER.get(name, name) for name in STATS]
    assert narrow_table(STATS, STATS_ROWS, Screen(60), shorter=SHORTER) == table(columns, STATS_ROWS, Screen(60))


def without_colours(line: str) -> str:
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        line = line.replace(code, "")
    return line


def test_without_a_terminal_there_is_a_line_of_names_and_one_a_row_with_tabs_between() -> None:
    assert blocks_or_table(["a", "b"], [("1", "-")], Screen()) == ["a\tb", "1\t-"]
    assert fields([("a", "1 2")], Screen()) == ["field\tvalue", "a\t1 2"]


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("command", SAMPLES)
def test_what_a_command_prints_fits_the_terminal_with_and_without_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, columns: int
) -> None:
    def shown(screen: Screen) -> str:
        monkeypatch.setattr(tables, "screen", lambda: screen)
        SAMPLES[command](monkeypatch, tmp_path)
        return ANY_COLOUR.sub("", capsys.readouterr().out)

    text = shown(Screen(columns))
    assert shown(Screen(columns, colour=True)) == text
    assert [line for line in text.splitlines() if cell_len(line) > columns and " " in line] == []
    assert {word for word in shown(Screen()).split() if len(word) > 24} <= set(text.split())


def test_there_is_a_sample_of_each_module_that_prints_a_table() -> None:
    modules = {
        path.relative_to(MODULES).with_suffix("").parts for path in MODULES.rglob("*.py") if prints_a_table(path)
    }
    sampled = {
        tuple(leaf.function.partition(":")[0].split("."))
        for words, leaf in leaves()
        if any(sample.startswith(words) for sample in SAMPLES)
    }
    assert {module for module in modules if not any(module[: len(each)] == each for each in sampled)} == set()


def prints_a_table(path: Path) -> bool:
    return PRINTS_A_TABLE.search(path.read_text()) is not None


def leaves() -> Iterator[tuple[str, Leaf]]:
    for word, found in COMMANDS.items():
        below = (
            {word: found} if isinstance(found, Leaf) else {f"{word} {n}": leaf for n, leaf in found.commands.items()}
        )
        yield from below.items()


words = st.lists(st.integers(1, 120).map(lambda length: chr(97 + length % 26) * length), min_size=1, max_size=8)


ANY_TABLE: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]], Screen], list[str]]] = {
    "table": table,
    "blocks_or_table": blocks_or_table,
    "narrow_table": partial(narrow_table, shorter={"status": "is"}),
    "fields": lambda columns, rows, screen: fields([(columns[0], cell) for row in rows for cell in row], screen),
}


@pytest.mark.parametrize("made_by", ANY_TABLE)
@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.tuples(words, words, words, words), min_size=1, max_size=4),
    columns=st.sampled_from([30, 80, 100, 200]),
)
def test_no_word_is_folded_or_lost_and_only_a_word_alone_may_be_longer_than_a_line(
    made_by: str, rows: list[tuple[list[str], ...]], columns: int
) -> None:
    cells = [tuple(map(" ".join, row)) for row in rows]
    lines = ANY_TABLE[made_by](["descriptor", "error", "status", "left"], cells, Screen(columns))
    shown = Counter(" ".join(lines).split())
    assert all(word in shown for row in rows for cell in row for word in cell)
    assert all(cell_len(line) <= columns or line in shown for line in lines)
    coloured = ANY_TABLE[made_by](["descriptor", "error", "status", "left"], cells, Screen(columns, colour=True))
    assert [without_colours(line) for line in coloured] == lines


def test_a_table_with_a_long_text_wraps_it_in_its_column() -> None:
    rows = [("enqueue", "ShardConnectionFailed: the shard does not answer", "12"), ("ack", "Timeout", "3")]
    assert table(["call", "error", "number"], rows, Screen(45)) == [
        "call     error                       number",
        "enqueue  ShardConnectionFailed: the      12",
        "         shard does not answer",
        "ack      Timeout                          3",
    ]


def test_a_table_of_which_two_columns_do_not_fit_side_by_side_goes_one_block_a_row() -> None:
    rows = [(WORKER, QUEUE, "3", "0"), ("web-1", "emails", "0", "1")]
    assert table(["worker", "queue", "holds", "waits"], rows, Screen(80)) == [
        *(f"worker {WORKER}", f"  queue  {QUEUE}", "  holds  3", "  waits  0"),
        *("", "worker web-1", "  queue  emails", "  holds  0", "  waits  1"),
    ]


def test_a_line_wraps_with_its_indentation() -> None:
    assert wrap_line("    File one two three four five", 30) == ["    File one two three four", "    five"]
    assert wrap_line("  as it is", None) == ["  as it is"]


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(0, "0ms"), (850, "850ms"), (1_000, "1s"), (75_000, "1m 15s"), (3_600_000, "1h"), (273_600_000, "3d 4h")],
)
def test_an_age_has_two_units_at_most(span_ms: int, text: str) -> None:
    assert output.age(span_ms) == text


@pytest.mark.parametrize(
    ("claim", "source"),
    [("h:9010:17:web-1:3", "web-1"), ("h:9010:17:a:b:c:3", "a:b:c"), ("h:9010:17::3", ""), ("", None)],
)
def test_a_holder_is_the_source_in_the_claim(claim: str, source: str | None) -> None:
    assert output.source_of(claim) == source


@pytest.mark.parametrize(("columns", "colour"), [(80, False), (80, True), (200, False)])
def test_on_a_real_terminal_output_has_its_width(
    pinlater: Pinlater, queue: str, tmp_path: Path, columns: int, colour: bool
) -> None:
    pinlater.ok("job", "enqueue", queue, "--body", "x")
    shown = on_terminal(pinlater.address, columns, colour, "job", "list", queue)
    assert ("\x1b[1m" in shown) == colour
    lines = [without_colours(line) for line in shown.splitlines()]
    assert all(len(line) <= columns for line in lines)
    assert any(line.startswith(f"{queue}:s1:p1:") for line in lines)
    assert lines[0].startswith("descriptor") == (columns == 200)


def test_bodies_alone_get_a_line_each_on_a_terminal_and_with_a_limit_and_one_is_exact(
    pinlater: Pinlater, queue: str
) -> None:
    """A shell's prompt must not stick to a body, a file must hold nothing but the body, and two bodies must not become one."""
    pinlater.ok("job", "enqueue", queue, "--body", "three")
    for _ in range(3):
        pinlater.ok("job", "enqueue", queue, "--body", "one", "--body", "two\n")
    assert pinlater.ok("job", "dequeue", queue, "--ack", "--body-only").out == "three"
    words = ("job", "dequeue", queue, "--limit", "2", "--ack", "--body-only")
    assert pinlater.ok(*words).out == "one\ntwo\n"
    assert pinlater.ok(*words, "--null").out == "one\0two\n\0"
    assert on_terminal(pinlater.address, 80, False, *words) == "one\ntwo\n"


def test_queue_config_says_on_a_terminal_that_tasks_set_attempts_and_claims_of_their_jobs(
    pinlater: Pinlater, queue: str
) -> None:
    """The table shows the server's 2 attempts and 10 minutes, which do not apply to those jobs."""
    shown = on_terminal(pinlater.address, 80, False, "queue", "config", queue)
    assert " ".join(shown.split()).endswith(DEFAULTS_OF_TASKS)
    assert max(map(len, shown.splitlines())) <= 80
    assert DEFAULTS_OF_TASKS not in pinlater.ok("queue", "config", queue).out
    defaults = inspect.signature(Worker.task).parameters
    attempts, claim_s = defaults["attempts"].default, defaults["claim_timeout"].default
    assert f": {attempts} and {duration_text(round(claim_s * 1000))}," in DEFAULTS_OF_TASKS


def test_a_table_without_rows_is_a_word_on_a_terminal_and_its_columns_elsewhere() -> None:
    """A lone line of names looks as if the output had been cut off; a program reads the names."""
    assert table(STATS, [], Screen(80)) == blocks_or_table(JOBS, [], Screen(80)) == ["none"]
    assert blocks_or_table(["a", "b"], [], Screen()) == ["a\tb"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("job", "list"), "no pending jobs that are due (--future and --state show others)"),
        (("job", "list", "--future"), "no pending jobs that are due later"),
        (("job", "list", "--state", "failed"), "no failed jobs"),
        (("worker", "list"), "no worker holds a job, waits for one, or was heard lately"),
    ],
)
def test_an_empty_answer_says_what_there_is_none_of(
    pinlater: Pinlater, queue: str, command: tuple[str, ...], says: str
) -> None:
    assert on_terminal(pinlater.address, 80, False, *command, queue) == f"{says}\n"

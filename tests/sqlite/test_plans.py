"""No statement may look at rows that it doesn't need: none gets slower with waiting, future or finished jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.rows import StateRow
from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.migration import migrate
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.statements import STATEMENTS, OfIds, merged_pages, sql, union

# What may be read from end to end, and why.
ALLOWED_SCANS = {
    ("list_queues", "queues"): "it lists all queues",
    ("list_dropped_queues", "dropped_queues"): "it lists them all, and there are few",
    ("load_counters", "counters"): "once at the start, a row for each queue and priority",
    ("count_all_jobs", "queues"): "it lists all counters",
    ("page_of_claims", "claims"): "an operator's scan of jobs in progress, on a reader",
    (
        "oldest_claims",
        "claims",
    ): "an operator's deletion of jobs in progress, on a reader; once for each priority of a deleted queue",
    ("list_miscounted", "queues"): "it looks at all counters, on a reader",
    ("list_miscounted", "claims"): "the first row and no more",
    ("count_rows", "claims"): "once for a queue whose counters are wrong",
    ("list_uncounted", "ready"): "the first row of the key and no more",
    ("list_uncounted", "waiting"): "a row for each queue and priority, at the start and after a change by hand",
    ("list_uncounted", "found"): "these rows and the jobs in progress",
    ("list_uncounted", "claims"): "as above",
    ("next_ordering_keys", "found"): "the keys found so far, a seek for each",
    ("list_unique_queues", "unique_keys"): "on a reader, and only where there are several shards",
    ("select_first_expiry", "expiries"): "the first row of the key and no more",
    ("select_first_key_times", "request_keys"): "the first row of the index and no more",
}
# Statements that have a form for one id (`OfIds`).
OF_IDS = ["load_jobs", "load_states", "load_claims", "select_claims", "finish_claims", "delete_rows", "move_rows"]
# Of these the table is a part of the text.
OF_TABLES = {"delete_rows", "move_rows"}
# These sort in memory, because they go through the jobs in progress, through the samples of several queues, or merge short pages.
ALLOWED_SORTS = {"page_of_claims", "oldest_claims", "list_samples_of", "merge_pages", "part_of_union"}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file with the schema, and no statistics, as in production."""
    connection = connect(tmp_path / "jobs.db", SqliteSettings())
    migrate(connection, tmp_path / "jobs.db")
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    if name in {"merge_pages", "part_of_union"}:
        return plan_of(connection, merged_pages(("page_of_due",) * 3))
    text = OfIds(name, "claims").of_many if name in OF_TABLES else sql(name).replace("{table}", "jobs")
    return plan_of(connection, text)


def plan_of(connection: sqlite3.Connection, text: str) -> list[str]:
    values = [None] * (max(int(number) for number in re.findall(r"\?(\d+)", text)) if "?" in text else 0)
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]


def scanned_tables(steps: list[str]) -> list[str]:
    tables = []
    for step in steps:
        words = step.split()
        if words[0] == "SCAN" and words[1] not in {"json_each", "wanted", "CONSTANT"} and "(subquery-" not in words[1]:
            tables.append(words[1])
    return tables


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_seeks_and_never_scans(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, name)
    scans = {table for table in scanned_tables(steps) if (name, table) not in ALLOWED_SCANS}
    assert not scans, steps


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_never_sorts_jobs(connection: sqlite3.Connection, name: str) -> None:
    """An ORDER BY that no index serves reads everything before the first row."""
    steps = plan(connection, name)
    sorts = [step for step in steps if "TEMP B-TREE FOR ORDER BY" in step]
    assert not sorts or name in ALLOWED_SORTS or name.startswith("count_"), steps


@pytest.mark.parametrize(("name", "table"), ALLOWED_SCANS)
def test_every_exception_is_still_needed(connection: sqlite3.Connection, name: str, table: str) -> None:
    assert table in scanned_tables(plan(connection, name))


def test_the_claim_reads_in_the_order_of_the_key(connection: sqlite3.Connection) -> None:
    first, second = plan(connection, "select_due")
    assert first == "SEARCH ready USING PRIMARY KEY (queue_id=? AND priority=? AND run_after_ms<?)"
    assert second == "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"


@pytest.mark.parametrize(
    ("name", "table", "index"),
    [
        ("page_of_due", "ready", "PRIMARY KEY (queue_id=? AND priority=?"),
        ("page_of_future", "ready", "PRIMARY KEY (queue_id=? AND priority=?"),
        ("page_of_done", "done", "COVERING INDEX done_by_finish (queue_id=? AND state=? AND priority=?"),
    ],
)
def test_a_page_of_several_priorities_seeks_each_and_sorts_the_pages_only(
    connection: sqlite3.Connection, name: str, table: str, index: str
) -> None:
    steps = plan_of(connection, merged_pages((name,) * 3))
    assert len([step for step in steps if step.startswith(f"SEARCH {table} USING {index}")]) == 3, steps
    assert not [step for step in steps if step.startswith(f"SCAN {table}")], steps


def test_samples_of_several_ranges_are_sought(connection: sqlite3.Connection) -> None:
    steps = plan_of(connection, union(("list_samples_of", "list_samples", "list_samples_of")))
    assert len([step for step in steps if step.startswith("SEARCH samples USING")]) == 3, steps


def test_a_claim_deletes_by_one_range(connection: sqlite3.Connection) -> None:
    [step] = plan(connection, "delete_ready_through")
    assert "USING PRIMARY KEY (queue_id=? AND priority=? AND (run_after_ms,id)<(?,?))" in step


@pytest.mark.parametrize("name", OF_IDS)
def test_a_statement_on_one_job_seeks_its_row_and_makes_no_temporary_table(
    connection: sqlite3.Connection, name: str
) -> None:
    """The table for the list of ids would cost more than the rest."""
    values = [None] * len(STATEMENTS[name].parameters)
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {OfIds(name, 'claims').of_one}", values)]
    looks = [step for step in steps if step not in {"CO-ROUTINE wanted", "SCAN CONSTANT ROW", "SCAN wanted"}]
    whole_keys = (
        "INTEGER PRIMARY KEY (rowid=?)",
        "PRIMARY KEY (queue_id=? AND priority=? AND run_after_ms=? AND id=?)",
    )
    assert all(any(key in step for key in whole_keys) for step in looks), steps


def test_every_statement_is_used() -> None:
    packages = [files("pinlater.server.storage.sqlite"), files("pinlater.server.storage.relational")]
    code = "".join(entry.read_text() for one in packages for entry in one.iterdir() if entry.name.endswith(".py"))
    assert [name for name in STATEMENTS if f'"{name}"' not in code] == []


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("load_jobs", JobRecord.__struct_fields__[:-2]),
        ("load_states", StateRow._fields),
        ("lookup_jobs", ("queue", *JobRecord.__struct_fields__[:-1])),
    ],
)
def test_loaded_rows_have_the_columns_that_the_statement_names(
    connection: sqlite3.Connection, name: str, fields: tuple[str, ...]
) -> None:
    """Rows are read by position."""
    cursor = connection.execute(sql(name), ["[]"] * len(STATEMENTS[name].parameters))
    assert tuple(column[0] for column in cursor.description) == fields

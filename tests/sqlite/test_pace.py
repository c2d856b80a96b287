"""Where commits run follows what they cost."""

from __future__ import annotations

from pinlater.server.storage.sqlite.commit import CommitPace

LIMIT_S = 0.000_150
QUICK_S = 0.000_040
SLOW_S = 0.005


def after(pace: CommitPace, seconds: float, turns: int) -> list[bool]:
    """What `turns` commits of that length do to the choice."""
    choices = []
    for _ in range(turns):
        choices.append(pace.inline())
        if choices[-1]:
            pace.took(seconds, inline=True)
        else:
            pace.took(seconds, inline=False)
    return choices


def test_quick_commits_stay_on_the_loop() -> None:
    assert all(after(CommitPace(LIMIT_S), QUICK_S, 500))


def test_slow_commits_move_to_the_thread_and_stay_there() -> None:
    choices = after(CommitPace(LIMIT_S), SLOW_S, 500)
    assert choices.index(False) < 50
    assert not any(choices[50:])


def test_a_few_stragglers_change_nothing() -> None:
    """One slow flush in ten is no slow disk."""
    pace = CommitPace(LIMIT_S)
    for turn in range(1_000):
        assert pace.inline()
        pace.took(SLOW_S if turn % 10 == 0 else QUICK_S, inline=True)


def test_a_disk_that_gets_quick_again_is_found_out() -> None:
    pace = CommitPace(LIMIT_S)
    after(pace, SLOW_S, 200)
    assert any(after(pace, QUICK_S, 200))
    assert all(after(pace, QUICK_S, 200)[-50:])


def test_with_a_limit_of_nothing_every_commit_goes_to_the_thread() -> None:
    assert not any(after(CommitPace(0), QUICK_S, 200))


def test_an_idle_store_commits_on_the_loop_unless_its_disk_is_very_slow() -> None:
    """A hand-over to a sleeping thread and back costs more than it saves where no other caller waits."""
    pace = CommitPace(LIMIT_S)
    for _ in range(500):
        pace.took(LIMIT_S * 5, inline=True)
    assert pace.inline(idle=True)
    for _ in range(500):
        pace.took(LIMIT_S * 50, inline=True)
    assert not pace.inline(idle=True)
    assert not CommitPace(0).inline(idle=True)

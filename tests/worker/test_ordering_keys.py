"""Tasks whose jobs have ordering keys: where the key comes from, and what is in order because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pinlater.testing import InProcessService
from pinlater.worker import Retry, Snooze, Worker
from pinlater.worker.tasks import Task


class Bank:
    """Writes down which postings began and ended."""

    def __init__(self, **options: Any) -> None:
        self.worker = Worker(concurrency=8)
        self.seen: list[str] = []
        self.fails_once: set[str] = set()
        self.failure: Retry | Snooze = Retry(after=5)

        @self.worker.task("bank", **options)
        async def post(account: str, step: int = 0) -> None:
            name = f"{account}{step}"
            self.seen.append(f"{name} begins")
            await asyncio.sleep(0)
            if name in self.fails_once:
                self.fails_once.remove(name)
                raise self.failure
            self.seen.append(f"{name} ends")

        self.post = post


@pytest.fixture
def service() -> Iterator[InProcessService]:
    with InProcessService() as made:
        yield made


def of_account(account: str) -> str:
    return f"account-{account}"


def keys_of(service: InProcessService, task: Task[..., Any]) -> list[str | None]:
    return [call.ordering_key for call in service.enqueued(task)]


def test_jobs_for_which_the_task_makes_one_key_run_one_after_the_other(service: InProcessService) -> None:
    bank = Bank(ordering_key=of_account)
    with service.serving(bank.worker):
        bank.post.enqueue_many([bank.post.job("a", step) for step in range(4)])
        asyncio.run(service.run_until_idle())
    assert bank.seen == [f"a{step} {what}" for step in range(4) for what in ("begins", "ends")]


@pytest.mark.parametrize("failure", [Retry(after=5), Snooze(5)], ids=["retried", "snoozed"])
def test_a_job_that_is_retried_or_snoozed_keeps_its_place(service: InProcessService, failure: Retry | Snooze) -> None:
    bank = Bank(ordering_key=of_account)
    bank.failure = failure
    bank.fails_once = {"a0"}
    with service.serving(bank.worker):
        for account in ("a", "b"):
            for step in range(2):
                bank.post.enqueue(account, step)
        asyncio.run(service.run_for(seconds=10))
    assert [one for one in bank.seen if one.startswith("a")] == [
        "a0 begins",
        "a0 begins",
        "a0 ends",
        "a1 begins",
        "a1 ends",
    ]
    assert bank.seen.index("b1 ends") < bank.seen.index("a0 ends")


def test_the_key_is_made_of_the_arguments_however_they_are_given(service: InProcessService) -> None:
    bank = Bank(ordering_key=lambda step, account: f"{account}/{step}" if account else None)
    post = bank.post
    with service.serving(bank.worker):
        post.enqueue("a")
        post.enqueue(account="b", step=2)
        post.enqueue_many([post.job("c", 3), post.using(priority=2).job("d")])
        post.enqueue("")
        assert keys_of(service, post) == ["a/0", "b/2", "c/3", "d/0", None]


def test_a_function_may_take_all_arguments(service: InProcessService) -> None:
    bank = Bank(ordering_key=lambda **arguments: repr(sorted(arguments)))
    with service.serving(bank.worker):
        bank.post.enqueue("a")
        assert keys_of(service, bank.post) == ["['account', 'step']"]


def test_a_key_of_using_takes_the_place_of_the_tasks(service: InProcessService) -> None:
    bank = Bank(ordering_key=of_account)
    with service.serving(bank.worker):
        bank.post.using(ordering_key="audit").enqueue("a")
        assert keys_of(service, bank.post) == ["audit"]


def test_a_task_without_keys_takes_one_for_a_job(service: InProcessService) -> None:
    bank = Bank()
    with service.serving(bank.worker):
        bank.post.enqueue("a")
        bank.post.using(ordering_key="k").enqueue("b")
        assert keys_of(service, bank.post) == [None, "k"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        ("account", "ordering_key must be a function of the task's arguments, such as lambda account:"),
        (lambda owner: owner, "ordering_key takes 'owner', and takes by name what the task has: account, step"),
        (lambda *given: given, r"ordering_key takes '\*given'"),
    ],
)
def test_a_function_that_does_not_fit_the_task_is_refused_when_it_is_registered(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"task post: {text}"):
        Bank(ordering_key=make)


@pytest.mark.parametrize(
    ("key", "kind", "text"),
    [
        ("", ValueError, "ordering_key has 1 to 128 bytes, not 0; None is no key"),
        ("é" * 65, ValueError, "ordering_key has 1 to 128 bytes, not 130"),
        (7, TypeError, "ordering_key must be a str, not int"),
    ],
)
@pytest.mark.parametrize(
    "enqueue",
    [
        lambda key: Bank(ordering_key=lambda: key).post.job("a"),
        lambda key: Bank().post.using(ordering_key=key),
    ],
    ids=["made", "given"],
)
def test_what_is_no_key_is_refused_before_anything_is_sent(
    enqueue: Callable[[Any], object], key: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=f"task post: {text}"):
        enqueue(key)

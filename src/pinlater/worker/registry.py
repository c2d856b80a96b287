"""The tasks and cron entries that a worker knows, by queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinlater.worker.cron import Cron
from pinlater.worker.tasks import Task


class QueueTasks:
    """One queue: its tasks, how many of its jobs may run at once, and its weight among the worker's queues."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self.concurrency: int | None = None
        self.weight = 1

    def default(self) -> Task[..., Any] | None:
        """The task for jobs that name none: the one marked so, or the only one."""
        marked = [task for task in self.tasks.values() if task.options.default]
        candidates = marked or list(self.tasks.values())
        return candidates[0] if len(candidates) == 1 else None


class Registry:
    """Filled by the worker's decorators."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueTasks] = {}
        self.crons: list[Cron] = []

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the block raises, all queues, tasks and cron entries are as before it."""
        queues = {name: (dict(queue.tasks), queue.concurrency, queue.weight) for name, queue in self._queues.items()}
        crons = list(self.crons)
        try:
            yield
        except BaseException:
            self.crons[:] = crons
            for name in set(self._queues) - set(queues):
                del self._queues[name]
            for name, (tasks, concurrency, weight) in queues.items():
                queue = self._queues[name]
                queue.tasks.clear()  # the same dictionary: tasks refer to it
                queue.tasks.update(tasks)
                queue.concurrency, queue.weight = concurrency, weight
            raise

    def queue(self, name: str) -> QueueTasks:
        """A queue, empty at first."""
        return self._queues.setdefault(name, QueueTasks())

    @property
    def queues_with_tasks(self) -> dict[str, QueueTasks]:
        """The queues that have tasks."""
        return {name: queue for name, queue in self._queues.items() if queue.tasks}

    @property
    def queues_without_tasks(self) -> list[str]:
        """Queues that have settings only."""
        return [name for name, queue in self._queues.items() if not queue.tasks]

    def add(self, task: Task[..., Any]) -> None:
        """Raises ValueError if the queue has a task of that name, or another default task."""
        tasks = self.queue(task.queue).tasks
        if task.name in tasks:
            raise ValueError(f"queue {task.queue!r} has a task called {task.name!r} already")
        if task.options.default and any(other.options.default for other in tasks.values()):
            raise ValueError(f"queue {task.queue!r} has a default task already")
        tasks[task.name] = task

    def add_cron(self, entry: Cron) -> None:
        """Raises ValueError if there is an entry of that name."""
        if any(other.name == entry.name for other in self.crons):
            raise ValueError(f"there is a cron entry called {entry.name!r} already; give this one a name")
        self.crons.append(entry)

    def crons_of(self, queues: Sequence[str] | Mapping[str, object] | None) -> list[Cron]:
        """The cron entries of these queues, or all."""
        return [entry for entry in self.crons if queues is None or entry.task.queue in queues]

    def chosen(self, queues: Sequence[str] | None) -> dict[str, QueueTasks]:
        """The queues to run, all by default. Raises ValueError if there are none, or if one has no task."""
        found = self.queues_with_tasks
        missing = [name for name in queues or () if name not in found]
        if missing:
            raise ValueError(f"no task for queue {missing[0]!r}; there are: {', '.join(found) or 'none'}")
        if not found:
            raise ValueError(
                "the worker has no task: decorate a function with @worker.task(queue), and name a module that imports all tasks"
            )
        return {name: found[name] for name in queues or found}

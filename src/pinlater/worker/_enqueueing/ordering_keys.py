"""The ordering key of a call, which a function of the task's user makes from the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pinlater.domain.job import ORDERING_KEY_BYTES_MAX
from pinlater.worker._enqueueing.arguments import Parameters

_EXAMPLE = "lambda account: f'account-{account}'"


class OrderingKeys:
    """Makes the ordering keys of a task's calls."""

    def __init__(self, task: str, make: Callable[..., str | None], parameters: Parameters) -> None:
        """Raises TypeError if `make` takes a parameter that is not an argument of the task."""
        if not callable(make):
            raise TypeError(
                f"task {task}: ordering_key must be a function of the task's arguments, such as {_EXAMPLE}, not {make!r}; "
                "a key that does not depend on them is one of task.using(ordering_key=...)"
            )
        taken = inspect.signature(make).parameters.values()
        self._all = any(each.kind is each.VAR_KEYWORD for each in taken)
        self._names = [each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        for each in taken:
            if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL) or (
                each.kind is not each.VAR_KEYWORD and each.name not in parameters.names
            ):
                raise TypeError(
                    f"task {task}: ordering_key takes {str(each)!r}, and takes by name what the task has: "
                    f"{', '.join(parameters.names) or 'no argument'}"
                )
        self._task = task
        self._make = make
        self._signature = parameters.signature

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The key of a call with these arguments, which fit the task. Raises what the function raises, and TypeError or ValueError if the
        result is not an ordering key; None means no key."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        key = self._make(**(given if self._all else {name: given[name] for name in self._names}))
        check_ordering_key(self._task, key)
        return key


def check_ordering_key(task: str, key: object) -> None:
    """Raises TypeError or ValueError if no job can have this ordering key; None means no key."""
    if not isinstance(key, str | None):
        raise TypeError(f"task {task}: ordering_key must be a str, not {type(key).__name__}")
    if key is not None and not 1 <= len(key.encode()) <= ORDERING_KEY_BYTES_MAX:
        raise ValueError(
            f"task {task}: ordering_key has 1 to {ORDERING_KEY_BYTES_MAX} bytes, not {len(key.encode())}; None is no key"
        )

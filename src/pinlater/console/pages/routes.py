"""The table of pages and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.console.pages import actions, failed, job, overview, queue, servers, workers
from pinlater.console.pages.page import Action, Page

# Path by name, in the order of the navigation.
SECTIONS: Mapping[str, str] = {"Overview": "/", "Failed": "/failed", "Workers": "/workers", "Servers": "/servers"}

PAGES: Sequence[Page] = (
    Page("/", "overview.html", "Overview", overview.show),
    Page("/find", "overview.html", "Overview", overview.find),
    Page("/queues/{queue}", "queue.html", "Overview", queue.show),
    Page("/jobs/{descriptor}", "job.html", "", job.show),
    Page("/failed", "failed.html", "Failed", failed.show),
    Page("/workers", "workers.html", "Workers", workers.show),
    Page("/servers", "servers.html", "Servers", servers.show),
)
ACTIONS: Sequence[Action] = (
    Action("/queues/{queue}/pause", actions.pause),
    Action("/queues/{queue}/resume", actions.resume),
    Action("/queues/{queue}/settings", actions.change),
    Action("/queues/{queue}/retry-failed", actions.retry_failed),
    Action("/jobs/{descriptor}/run", actions.run),
    Action("/jobs/{descriptor}/cancel", actions.cancel),
    Action("/jobs/{descriptor}/delete", actions.delete),
)

"""The table of pages and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.console.pages import actions, audit, bulk, failed, job, overview, queue, search, servers, workers
from pinlater.console.pages.page import Action, SitePage

# Path by name, in the order of the navigation.
SECTIONS: Mapping[str, str] = {
    "Overview": "/",
    "Failed": "/failed",
    "Bulk": "/bulk",
    "Workers": "/workers",
    "Servers": "/servers",
    "Search": "/search",
    "Audit": "/audit",
}

PAGES: Sequence[SitePage] = (
    SitePage("/", "overview.html", "Overview", overview.show),
    SitePage("/find", "overview.html", "Overview", overview.find),
    SitePage("/queues/{queue}", "queue.html", "Overview", queue.show),
    SitePage("/queues/{queue}/bulk", "bulk_preview.html", "Bulk", bulk.preview),
    SitePage("/bulk", "bulk.html", "Bulk", bulk.show),
    SitePage("/jobs/{descriptor}", "job.html", "", job.show),
    SitePage("/jobs/{descriptor}/body", "", "", job.download),
    SitePage("/failed", "failed.html", "Failed", failed.show),
    SitePage("/workers", "workers.html", "Workers", workers.show),
    SitePage("/servers", "servers.html", "Servers", servers.show),
    SitePage("/search", "search.html", "Search", search.show),
    SitePage("/audit", "audit.html", "Audit", audit.show),
)
ACTIONS: Sequence[Action] = (
    Action("/queues/{queue}/pause", actions.pause),
    Action("/queues/{queue}/resume", actions.resume),
    Action("/queues/{queue}/pin", actions.pin),
    Action("/queues/{queue}/unpin", actions.unpin),
    Action("/queues/{queue}/settings", actions.change),
    Action("/queues/{queue}/retry-failed", actions.retry_failed),
    Action("/queues/{queue}/mute", actions.mute),
    Action("/queues/{queue}/bulk", bulk.start),
    Action("/queues/{queue}/bulk/stop", bulk.stop),
    Action("/queues/{queue}/bulk/undo", bulk.undo),
    Action("/jobs/{descriptor}/run", actions.run),
    Action("/jobs/{descriptor}/priority", actions.change_priority),
    Action("/jobs/{descriptor}/cancel", actions.cancel),
    Action("/jobs/{descriptor}/delete", actions.delete),
)

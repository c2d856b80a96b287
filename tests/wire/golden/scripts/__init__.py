"""The scenarios as scripts: what is asked of a server, in order. Imported, they enter themselves in `record.SCRIPTS`."""

from tests.wire.golden.scripts import callers, changes, claims, frames, jobs, looking, queues, several

__all__ = ["callers", "changes", "claims", "frames", "jobs", "looking", "queues", "several"]

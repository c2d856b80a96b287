"""What this server knows of each method of the protocol: a record a method, in a module for each subject."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.thrift.methods import (
    audit_trail,
    bulk_runs,
    changing,
    cluster,
    explain,
    failures,
    history,
    jobs,
    looking,
    queues,
    workers,
)
from pinlater.server.thrift.methods.record import ServedMethod

_SUBJECTS = (jobs, looking, changing, queues, cluster, workers, explain, failures, bulk_runs, history, audit_trail)
METHODS: Mapping[str, ServedMethod] = {served.name: served for subject in _SUBJECTS for served in subject.METHODS}
"""The record of each method, by its name in the IDL."""

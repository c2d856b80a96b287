"""All commands of `pinlater` by noun, where each one's function is, and what to write instead of words that are not commands.

Plain values: nothing here imports a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Leaf(NamedTuple):
    """A command.

    `function`: MODULE:NAME below `pinlater.cli.commands`.
    `panel`: the part of the help in which it is listed.
    `extra`: what to install for it, unless the missing module is that of a store.
    `sends_token`: False if its callers send tokens of their own.
    `own_tls`: True if its options of these names are for another connection than that to the servers.
    """

    function: str
    panel: str | None = None
    extra: str = "server"
    sends_token: bool = True
    own_tls: bool = False


class Group(NamedTuple):
    """Commands below a noun.

    `default`: the command that is meant if the first word is not a command of the group; '' for none.
    """

    help: str
    panel: str
    commands: Mapping[str, Leaf]
    default: str = ""


RUNNING, JOBS, SERVERS, TRYING = "Run", "Jobs and queues", "Servers", "Measure and try"
WORK, LOOK, CHANGE = "Enqueue and work", "Look", "Change"

COMMANDS: Mapping[str, Leaf | Group] = {
    "serve": Leaf("serve:serve", RUNNING),
    "worker": Group(
        "Run a worker, list workers, show a timetable.\n\n`pinlater worker MODULE:NAME` is short for `worker run MODULE:NAME`.\n\n"
        "Example: pinlater worker jobs:worker",
        RUNNING,
        {
            "run": Leaf("worker.run:run_worker"),
            "list": Leaf("worker.list:list_workers"),
            "cron": Leaf("worker.cron:cron"),
        },
        default="run",
    ),
    "console": Leaf("console:console", RUNNING, extra="console", sends_token=False),
    "job": Group(
        "Enqueue jobs, look at them, change them.\n\nExample: pinlater job list emails --state failed",
        JOBS,
        {
            "enqueue": Leaf("job.enqueue:enqueue", WORK),
            "dequeue": Leaf("job.dequeue:dequeue", WORK),
            "check-dequeue": Leaf("job.dequeue:check_dequeue", WORK),
            "peek": Leaf("job.dequeue:peek", WORK),
            "ack": Leaf("job.named:ack", WORK),
            "list": Leaf("job.list:list_jobs", LOOK),
            "count": Leaf("job.filtered:count", LOOK),
            "show": Leaf("job.details:show", LOOK),
            "explain": Leaf("job.details:explain", LOOK),
            "failures": Leaf("job.failures:failures", LOOK),
            "run-now": Leaf("job.named:run_now", CHANGE),
            "retry": Leaf("job.filtered:retry_jobs", CHANGE),
            "change-priority": Leaf("job.named:change_priority", CHANGE),
            "cancel": Leaf("job.named:cancel", CHANGE),
            "delete": Leaf("job.filtered:delete_jobs", CHANGE),
        },
    ),
    "bulk": Group(
        "Retry, delete or cancel many jobs in the background.\n\nExample: pinlater bulk list",
        JOBS,
        {
            "start": Leaf("bulk:start"),
            "list": Leaf("bulk:list_runs"),
            "stop": Leaf("bulk:stop"),
            "undo": Leaf("bulk:undo"),
        },
    ),
    "queue": Group(
        "Create, list, delete, pause and configure queues.\n\nExample: pinlater queue stats --watch",
        JOBS,
        {
            "list": Leaf("queue:list_queues"),
            "stats": Leaf("queue:stats"),
            "create": Leaf("queue:create"),
            "delete": Leaf("queue:delete"),
            "pause": Leaf("queue:pause"),
            "resume": Leaf("queue:resume"),
            "unblock": Leaf("queue:unblock"),
            "config": Leaf("queue:config"),
        },
    ),
    "server": Group(
        "Show the settings of a server, upgrade or copy its store.\n\nExample: pinlater server settings --config pinlater.toml",
        SERVERS,
        {
            "settings": Leaf("server.settings:settings"),
            "migrate": Leaf("server.migrate:migrate"),
            "backup": Leaf("server.backup:backup"),
            "hash-password": Leaf("server.hash_password:hash_password"),
            "import-original": Leaf("server.import_original:import_original", own_tls=True),
            "version": Leaf("server.version:version"),
        },
    ),
    "shards": Group(
        "List shards, show their status, drain and remove one.\n\nExample: pinlater shards list --shards shards.json",
        SERVERS,
        {
            "list": Leaf("shards:list_shards"),
            "status": Leaf("shards:status"),
            "drain": Leaf("shards:drain"),
            "remove": Leaf("shards:remove"),
        },
    ),
    "cluster": Group(
        "Show which servers share the shards.\n\nExample: pinlater cluster status --server a:9010,b:9010",
        SERVERS,
        {"status": Leaf("cluster:status")},
    ),
    "token": Group(
        "Create, list, limit and revoke the tokens of callers.\n\n"
        "Example: pinlater token create billing --role produce --queue 'mail*'",
        SERVERS,
        {
            "create": Leaf("token:create"),
            "list": Leaf("token:list_tokens"),
            "limit": Leaf("token:limit"),
            "revoke": Leaf("token:revoke"),
        },
    ),
    "audit": Leaf("audit:audit", SERVERS),
    "demo": Leaf("demo:demo", TRYING),
    "bench": Group(
        "Measure a server under load, or simulate a cluster.\n\nExample: pinlater bench load --mode enqueue",
        TRYING,
        {"load": Leaf("bench.load:load"), "simulate": Leaf("bench.simulate:simulate")},
    ),
    "client-tool": Leaf("client_tool:client_tool", TRYING),
}

# What to write instead: for commands that were at the top level until there were nouns, for other forms of a noun, and for those of other
# job services.
INSTEAD: Mapping[str, str] = {
    "workers": "worker list",
    "cron": "worker cron",
    **{name: f"job {name}" for name in ("enqueue", "dequeue", "check-dequeue", "peek", "ack", "cancel", "explain")},
    **{name: f"job {name}" for name in ("failures", "count", "run-now", "change-priority")},
    "lookup": "job show",
    "scan": "job list",
    "retry-failed": "job retry",
    "delete-jobs": "job delete",
    "load": "bench load",
    "simulate": "bench simulate",
    **{
        name: f"server {name}"
        for name in ("settings", "migrate", "backup", "hash-password", "import-original", "version")
    },
    "job lookup": "job show",
    "job scan": "job list",
    "server run": "serve",
    "server start": "serve",
    "server status": "cluster status",
    "worker start": "worker run",
    **{name: f"queue {name}" for name in ("stats", "create", "pause", "resume", "config", "list", "delete")},
    "retry": "job retry",
    "purge": "job delete",
    "revoke": "job cancel",
    "status": "queue stats",
    **dict.fromkeys(("queue purge", "queue clear", "queue empty", "queue drain"), "job delete"),
    **dict.fromkeys(("queue status", "queue show", "queue info", "queue count"), "queue stats"),
    **dict.fromkeys(("queue rm", "queue remove", "queue drop"), "queue delete"),
    **dict.fromkeys(("queue set", "queue limit"), "queue config"),
    "queue retry": "job retry",
    **{f"{noun}s": noun for noun in ("job", "queue", "server", "token")},
    "shard": "shards",
}

"""Command lines that are wrong: each is one line on standard error, in plain words, and exit code 2; nothing is asked or printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.cli import exits
from tests.cli.conftest import Pinlater

GROUP, TLS = "0123456789abcdef", "https://jaeger.example.org"
EXCLUDED = "exclude each other"
NO_QUEUE = "name a queue, or jobs with --descriptor"
NOT_A_TIME = "is not a time; write 2030-01-31T12:00:00Z"
NO_LATER_COMMAND = "Write the options of a command behind it: pinlater"
ASKS_NO_SERVER = "error: No such option: --server. The command asks the store itself, and no server (see: "
NEEDS_INSECURE = "--insecure"

WRONG = f"""
enque                                               Did you mean 'queue'?
job enque                                           Did you mean 'enqueue'?
queue stat                                          Did you mean 'stats'?
worker lst                                          Did you mean 'list'?
--server a list                                     {NO_LATER_COMMAND} COMMAND --server
queue --json list                                   {NO_LATER_COMMAND} queue COMMAND --json
worker --watch list                                 {NO_LATER_COMMAND} worker COMMAND --watch
worker --server 127.0.0.1:9010 list                 {NO_LATER_COMMAND} worker COMMAND --server
job --server 127.0.0.1:9010 list                    {NO_LATER_COMMAND} job COMMAND --server
job enqueue                                         Missing argument 'QUEUE'
server backup                                       Missing argument 'TARGET'
job enqueue q --no-such-option                      No such option: --no-such-option
job enqueue q --no-such x                           --no-such
job count q --state                                 Option --state requires an argument. (see: pinlater job count --help)
queue config q --max-backlog                        (see: pinlater queue config --help)
job count q --state asleep                          error: Invalid value for --state: 'asleep' is not one of 'pending',
job count q --priority high                         --priority: 'high' is not a whole number
job dequeue q --limit x                             --limit: 'x' is not a whole number
job dequeue q --limit 0                             --limit: 0 is too small: at least 1
console --port 99999                                --port: 99999 is not from 0 to 65535
bench load --dequeue-success-percent 101            '101' is not a whole number from 0 to 100
client-tool --host h --port 1 --mode create --job_state -1  --job_state: -1 is not a whole number from 0 to 3
bulk start q --action retry --rate x                --rate: 'x' is not a number
queue config q --max-backlog 1.5                    error: Invalid value for --max-backlog: '1.5' is not a whole number or `default`
queue config q --partitions 0                       error: Invalid value for --partitions: partitions must be from 1 to 2147483647, not 0
queue config q --partitions many                    error: Invalid value for --partitions: 'many' is not a whole number or `auto`
queue config q --max-jobs-per-second no             --max-jobs-per-second: 'no' is not a number or `default`
queue config q --failed-ttl long                    --failed-ttl: 'long' is not a duration such as 500ms, 90s, 10m
job enqueue q --body x --delay soon                 --delay: 'soon' is not a duration such as
job enqueue q --body x --expires-in soon            --expires-in: 'soon' is not a duration such as
job dequeue q --wait long                           --wait: 'long' is not a duration such as
queue stats --watch --every 0s                      --every: '0s' is less than 100ms
job list q --newer-than soon                        --newer-than: 'soon' is not a duration such as
job count q --timeout soon                          error: Invalid value for --timeout: 'soon' is not a duration
job count q --timeout '5 weeks'                     error: Invalid value for --timeout: '5 weeks' is not a duration
job count q --timeout 0                             error: Invalid value for --timeout: 0 is less than 1ms
job count q --timeout -1                            error: Invalid value for --timeout: -1 is less than 1ms
job count q --timeout inf                           error: Invalid value for --timeout: inf is less than 1ms
job count q --timeout nan                           error: Invalid value for --timeout: nan is less than 1ms
job enqueue q --body x --at tomorrow                --at: 'tomorrow' {NOT_A_TIME}
audit --since soon                                  --since: 'soon' {NOT_A_TIME}
audit --since soon                                  or a span before now such as 2h or 7d
audit --since yesterday                             --since: 'yesterday' {NOT_A_TIME}
audit --since 5x                                    --since: '5x' {NOT_A_TIME}
audit --until 3                                     --until: '3' is not a time
audit --limit 0                                     --limit: 0 is too small
audit a b                                           QUEUE: name one queue, or none for all changes
job enqueue q --body x --at 0 --delay 1             --delay and --at {EXCLUDED}
job enqueue q --body x --header nothing             --header: 'nothing' is not NAME=VALUE
job enqueue q --task a --header pinlater-task=b     --task sets the header pinlater-task: give one of the two
job enqueue q --body x --unique-for 1s              --unique-for needs --unique-key
job enqueue q --body x --unique-key k --unique-for 0s  --unique-for: the span must be more than 0
job enqueue q --body x --unique-key ''              --unique-key: the key must not be empty
job enqueue q --body x --expires-in 0               --expires-in: a job that expires at once never runs
job enqueue q --body x --expires-in 0s              --expires-in: a job that expires at once never runs
job enqueue q --body x --delay 2m --expires-in 1m   --expires-in: the job expires at 20
job enqueue q --body x --at 2100-01-01T00:00:00Z --expires-in 1m  before it is due at 2100-01-01T00:00:00.000Z
job ack q:s1:p1:1 --final                           --final, --retry-delay, --error-type and --error-text need --failed
job count q --future --state failed                 --future: only pending jobs wait for their time, not those that are failed
job list q --future --state failed                  --future: only pending jobs wait for their time, not those that are failed
job list a b --after 1.1                            --after: a continuation is one queue's: name that queue
job list q --group nope                             --group: 'nope' is not the name of a group: 16 hexadecimal digits
job retry q --group nope                            --group: 'nope' is not the name of a group: 16 hexadecimal digits
job delete q                                        --state: delete needs the state of the jobs: pending, in_progress, succeeded, failed; or
bulk start q --action delete                        --state: delete needs the state of the jobs: pending, in_progress, succeeded or failed
bulk start q --action cancel                        --state: cancel needs the state of the jobs: pending or in_progress (see
bulk start q --action cancel --state failed         --state: cancel changes no failed jobs, only pending or in_progress ones
job delete --state failed                           QUEUE: {NO_QUEUE}
job retry                                           QUEUE: {NO_QUEUE}
job retry q --descriptor r:s1:p1:1                  --descriptor: a job of queue r, not q
job delete q -d r:s1:p1:1                           --descriptor: a job of queue r, not q
job delete -d q:s1:p1:1 -d r:s1:p1:1                --descriptor: a job of queue r, not q
job delete q --state failed -d q:s1:p1:1            --state and --descriptor {EXCLUDED}
job retry -d q:s1:p1:1 --task send                  --descriptor excludes --dry-run and the options that choose jobs
job retry -d q:s1:p1:1 --error x                    --descriptor excludes --dry-run and the options that choose jobs
job retry -d q:s1:p1:1 --regex x                    --descriptor excludes --dry-run and the options that choose jobs
job delete -d q:s1:p1:1 --task send                 --descriptor excludes --dry-run and the options that choose jobs
job show                                            name jobs by their descriptors, or --unique-key
job explain                                         name jobs by their descriptors, or --unique-key
job show --queue q                                  --queue goes with --unique-key
job explain --queue q                               --queue goes with --unique-key
job show q:s1:p1:1 --unique-key k                   --unique-key: name jobs, or a key, not both
job explain q:s1:p1:1 --unique-key k                --unique-key: name jobs, or a key, not both
job failures q --mute {GROUP} --for 90d             --for: '90d' must be more than 0 and at most 30d
queue delete q --no-password --password-stdin       {EXCLUDED}
queue list --server ''                              --server: no server given; write host:port
job count q --server 'host:port:x:y z'              --server: not a server address
server version -s file:no-tokens                    --server: server set no-tokens: can't be read: No such file or directory
server version -s ' , '                             --server: no server given; write host:port
shards list --server a:9010                         {ASKS_NO_SERVER}
shards drain 2 --server a:9010                      {ASKS_NO_SERVER}
shards remove 2 --server a:9010                     {ASKS_NO_SERVER}
server migrate --server a:9010                      {ASKS_NO_SERVER}
shards status --server a:9010 --http a:9999         --server and --http {EXCLUDED}
server import-original                              --from: name the old database server, as --from mysql://USER@HOST:PORT/
server import-original --from olddb:3306            --from: it is not an address: write mysql://USER@HOST:PORT/
server import-original --from mysql://olddb/        --from: it is not an address: write mysql://USER@HOST:PORT/
server import-original --from mysql://u@h:x/        --from: it is not an address: write mysql://USER@HOST:PORT/
server import-original --from http://u@h            --from: it is not an address: write mysql://USER@HOST:PORT/
server import-original --from mysql://u@h/plq_1     --from: it names more than a server: write mysql://USER@HOST:PORT/, and --queue
server hash-password                                standard input is empty; run the command on a terminal, or pipe
worker x:y --log-level loud                         --log-level: 'loud' is not one of debug, info, warning, error
worker tasks.py:worker                              is a file: name its module, tasks:worker
worker ./tasks.py:worker                            is a file: name its module, tasks:worker
worker cron ../app/shop:worker                      go there and name its module, shop:worker
demo --json --stay                                  --stay: --json and --stay {EXCLUDED}
serve --example --processes 2                       --example: not for a server with 2 processes
console --trace-url {TLS}                           {{trace_id}}
console --source-url {TLS}                          {{file}}
console --host 0.0.0.0                              {NEEDS_INSECURE}
console --host ::                                   {NEEDS_INSECURE}
console --host 10.1.2.3                             {NEEDS_INSECURE}
console --host jobs.example                         {NEEDS_INSECURE}
console --name https://jobs.example                 not a host name such as
console --user-token-file users.token               needs --trusted-proxy
console --trusted-proxy 0.0.0.0/0 --user-token-file users.token  every address
console --trusted-proxy 10.0.0.5 --user-token-file none.token    can't be read
console --trusted-proxy 10.0.0.5 --user-header Cookie            not a header
bench simulate --servers 0                          0 is not from 1 to 100
bench simulate --fault nonsense@1m                  'nonsense@1m' names no fault: there are kill-server,
bench simulate --fault kill-server                  is not NAME@TIME[+DURATION][:NUMBER]
bench simulate --for 20s --fault kill-server@20s    begins after the simulated time, which ends at 20s
bench simulate --for 20s --fault kill-server@10s+11s  ends after the simulated time, which ends at 20s
bench simulate --fault kill-server@1s:4             names server 4, and there are 3
bench simulate --workers 3 --fault kill-worker@1s:0  names worker 0, and there are 3
bench simulate --fault bad-network@1s+1s:1          takes no number
bench simulate --fault kill-server@1x               is not a duration
bench simulate --rate 0                             the rate must be more than 0
bench simulate --rate 3 --queue a=1                 --rate and --queue {EXCLUDED}
bench simulate --queue a                            'a' is not NAME=RATE
bench simulate --queue a=x                          'a=x' is not NAME=RATE
bench simulate --queue a-b=1                        letters, digits
"""


def cases() -> Iterator[tuple[str, str]]:
    """Each command line with what its error says; two blanks or more are between them."""
    for line in WRONG.strip().splitlines():
        words, _, says = line.partition("  ")
        yield words, says.strip()


@pytest.mark.parametrize(("words", "says"), list(cases()))
def test_a_wrong_command_line_is_told_in_one_line_and_plain_words(
    offline: Pinlater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.token").write_text("secret")
    done = offline(*shlex.split(words))
    assert (done.code, done.err.count("\n"), done.out) == (exits.USAGE, 1, "")
    told = done.err if "--json" not in words else f"error: {json.loads(done.err)['error']}"
    assert told.startswith("error: ")
    assert says in told


@pytest.mark.parametrize("words", ["queue stats --json --evry 2s", "job enqueue --json", "enque --json"])
def test_it_is_a_json_document_where_json_is_asked_for(offline: Pinlater, words: str) -> None:
    done = offline(*words.split())
    assert (done.code, json.loads(done.err)["exit_code"]) == (exits.USAGE, exits.USAGE)

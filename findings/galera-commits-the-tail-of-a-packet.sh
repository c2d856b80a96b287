#!/usr/bin/env bash
# MariaDB with Galera commits the last statements of a packet without the first ones, and answers the COMMIT with 1213.
#
# Versions: MariaDB 10.11.19 and Galera 26.4.23 (Debian 12), PyMySQL 1.1.1. Two nodes on 127.0.0.1 with equal data.
# Valid input: transactions of READ COMMITTED that insert one id into three tables and change a hot row; some conflict with those of the
# other node. A client that sends statements and COMMIT in one packet (CLIENT_MULTI_STATEMENTS) would expect that 1213, "Deadlock found when
# trying to get lock; try restarting transaction", means that nothing of the transaction was stored.
# Behaviour: if the other node's transaction aborts this one between two statements of the packet, the statements before are rolled back,
# those after are carried out without an error and are committed, and the COMMIT is answered with 1213. A client that repeats the
# transaction then has a part of it twice, one that gives up has a part of it.
# If the COMMIT is a packet of its own, none of that happens: 0 of 19,885 conflicts in a run of 30 seconds.
# Output seen, of runs of 8 seconds each (the numbers vary):
#   COMMIT in the packet: 1213 conflicts 2418, transactions by half 62
#   COMMIT alone:         1213 conflicts 2775, transactions by half 0
# Ends with 0 if both are so, with 1 if not. Needs Debian 12 on x86_64 with apt-get and Python 3 with venv; changes nothing outside a
# temporary folder.
set -euo pipefail

folder=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

apt-get -qq download mariadb-server-core=1:10.11.19-0+deb12u1 mariadb-client-core=1:10.11.19-0+deb12u1 galera-4=26.4.23-0+deb12u1 \
  liburing2 libaio1 libnuma1 2>/dev/null
for package in *.deb; do dpkg -x "$package" packages; done
export LD_LIBRARY_PATH=$folder/packages/usr/lib/x86_64-linux-gnu
python3 -m venv venv
venv/bin/pip -q install PyMySQL==1.1.1

# The state transfer: the nodes' data are equal, only the position is told.
mkdir bin
cat >bin/wsrep_sst_position <<'SCRIPT'
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --role) role=$2 ;; --address) address=$2 ;; --gtid) position=$2 ;; --datadir) data=${2%/} ;; esac
  shift
done
if [ "$role" = donor ]; then
  echo "$position" >"$address.new" && mv "$address.new" "$address" && echo "done $position"
else
  rm -f "$data/position"
  echo "ready $data/position"
  until [ -e "$data/position" ]; do sleep 0.1; done
  cat "$data/position"
fi
SCRIPT
chmod +x bin/wsrep_sst_position
export PATH=$folder/bin:$PATH

read -r -a ports <<<"$(python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
print(*[one.getsockname()[1] for one in held])')"
as_root=()
if [ "$(id -u)" = 0 ]; then as_root=(--user=root); fi

start() { # node cluster-address
  local node=$1 sql=${ports[$1]} group=${ports[$1 + 2]} transfer=${ports[$1 + 4]}
  packages/usr/sbin/mariadbd --no-defaults --basedir="$folder/packages/usr" --datadir="$folder/data$node" "${as_root[@]}" --skip-name-resolve \
    --bind-address=127.0.0.1 --port="$sql" --socket="$folder/$node.sock" --pid-file="$folder/$node.pid" --log-error="$folder/$node.log" \
    --innodb-buffer-pool-size=32M --innodb-log-file-size=16M --innodb-flush-log-at-trx-commit=0 --binlog-format=ROW \
    --innodb-autoinc-lock-mode=2 --wsrep-on=ON --wsrep-provider="$folder/packages/usr/lib/galera/libgalera_smm.so" \
    --wsrep-cluster-address="$2" --wsrep-node-address=127.0.0.1 --wsrep-sst-method=position \
    --wsrep-provider-options="base_host=127.0.0.1;base_port=$group;gmcast.listen_addr=tcp://127.0.0.1:$group;ist.recv_addr=127.0.0.1:$transfer;gcache.size=8M" \
    >/dev/null 2>&1 &
  pids[node]=$!
  local tries
  for tries in $(seq 600); do
    if grep -q 'Synchronized with group' "$node.log" 2>/dev/null && grep -q 'ready for connections' "$node.log"; then return; fi
    sleep 0.1
  done
  echo "node $node did not start" >&2
  tail -n 20 "$node.log" >&2
  exit 1
}

packages/usr/bin/mariadb-install-db --no-defaults --basedir="$folder/packages/usr" --datadir="$folder/data0" "${as_root[@]}" --skip-test-db \
  --auth-root-authentication-method=normal --skip-name-resolve --innodb-log-file-size=16M >install.log 2>&1
start 0 gcomm://
kill "${pids[0]}" && wait "${pids[0]}" || true
cp -a data0 data1
rm 0.log
start 0 gcomm://
start 1 "gcomm://127.0.0.1:${ports[2]}"

cat >program.py <<'PROGRAM'
import sys, threading, time
import pymysql
from pymysql.constants import CLIENT

SOCKETS, SECONDS = sys.argv[1:3], 8


def connect(path):
    return pymysql.connect(unix_socket=path, user="root", client_flag=CLIENT.MULTI_STATEMENTS, autocommit=False)


def run(connection, text):
    with connection.cursor() as cursor:
        cursor.execute(text)
        while cursor.nextset():
            pass


def work(path, number, alone, conflicts, until):
    connection = connect(path)
    run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; USE q")
    one = number * 1_000_000
    while time.monotonic() < until:
        one += 1
        statements = [f"INSERT INTO x VALUES ({one})", f"UPDATE hot SET v = v + 1 WHERE id = {one % 2}",
                      f"INSERT INTO y VALUES ({one})", f"INSERT INTO z VALUES ({one})"]
        packets = [";".join(statements), "COMMIT"] if alone else [";".join([*statements, "COMMIT"])]
        try:
            for packet in packets:
                run(connection, packet)
        except pymysql.MySQLError as error:
            assert error.args[0] == 1213, error
            conflicts.append(one)
            for _ in range(2):
                try:
                    run(connection, "ROLLBACK")
                except pymysql.MySQLError:
                    continue
                break


def count(alone):
    connection = connect(SOCKETS[0])
    run(connection, "CREATE DATABASE IF NOT EXISTS q; USE q; DROP TABLE IF EXISTS x, y, z, hot; CREATE TABLE x (id BIGINT PRIMARY KEY);"
        "CREATE TABLE y LIKE x; CREATE TABLE z LIKE x; CREATE TABLE hot (id INT PRIMARY KEY, v INT); INSERT INTO hot VALUES (0, 0), (1, 0); COMMIT")
    time.sleep(1)
    conflicts, until = [], time.monotonic() + SECONDS
    threads = [threading.Thread(target=work, args=(path, 10 * place + index, alone, conflicts, until))
               for place, path in enumerate(SOCKETS, 1) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(2)
    tables = []
    for table in "xyz":
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table}")
            tables.append({one for (one,) in cursor.fetchall()})
        connection.commit()
    half = set.union(*tables) - set.intersection(*tables)
    assert half <= set(conflicts)
    print(f"COMMIT {'alone:        ' if alone else 'in the packet:'} 1213 conflicts {len(conflicts)}, transactions by half {len(half)}", flush=True)
    return len(half)


together, alone = count(alone=False), count(alone=True)
sys.exit(not (together > 0 and alone == 0))
PROGRAM
venv/bin/python program.py "$folder/0.sock" "$folder/1.sock"

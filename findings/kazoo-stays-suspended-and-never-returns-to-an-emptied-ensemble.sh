#!/usr/bin/env bash
# A client of kazoo that is cut off is never told that its session is over, and does not return to an ensemble that has lost its data.
#
# Versions: kazoo 2.11.0, ZooKeeper 3.9.5 (Java 17), Python 3.11. One server on 127.0.0.1, sessions of two seconds.
# Valid input: a client that is connected, while the server is stopped, and started again on the same port.
# A user would expect from the states (CONNECTED, SUSPENDED, LOST) that LOST comes once the session can't live any more, and that a client
# which tries to connect without end gets a new session from a server that knows nothing of the old one.
# Behaviour: while the server is away, the state is SUSPENDED, for any number of session time-outs. After a start with the old data, the
# client is connected again, with its old session. After a start with an empty data folder, the server closes each of
# its connections, since the client has seen a newer change than the server has; the state stays SUSPENDED, without LOST or an exception.
# It ends only once the server has counted as many changes as the client saw. A client that is made anew connects at once.
# Output seen:
#   away for 4 session time-outs:          SUSPENDED, told ['CONNECTED', 'SUSPENDED']
#   back with its data:                    CONNECTED, told ['CONNECTED', 'SUSPENDED', 'CONNECTED']
#   back without data, 5 time-outs later:  SUSPENDED, told ['CONNECTED', 'SUSPENDED', 'CONNECTED', 'SUSPENDED']
#   a new client:                          CONNECTED
# Ends with 0 if it is so, with 1 if not. Needs Java, Maven and Python 3 with venv; changes nothing outside a temporary folder but Maven's cache.
set -euo pipefail

folder=$(mktemp -d)
trap 'kill -9 "$(cat "$folder/pid" 2>/dev/null)" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.9.5</version></dependency>
<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.2.40</version></dependency>
<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.8</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.13</version></dependency>
</dependencies></project>
XML
mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.1.2:copy-dependencies -DoutputDirectory=jars >/dev/null
python3 -m venv venv
venv/bin/pip -q install kazoo==2.11.0

cat >seen.py <<'PYTHON'
import logging, os, shutil, socket, subprocess, sys, time
from pathlib import Path
from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
SESSION_S = 2.0
data = Path("data")
with socket.create_server(("127.0.0.1", 0)) as held:
    port = held.getsockname()[1]
Path("zoo.cfg").write_text(
    f"dataDir={data.absolute()}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=200\nminSessionTimeout=1000\n"
    "admin.enableServer=false\n"
)


def start():
    data.mkdir(exist_ok=True)
    server = subprocess.Popen(
        ["java", "-Xmx64m", "-cp", "jars/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    Path("pid").write_text(str(server.pid))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


def stop(server):
    server.kill()
    server.wait()


def wait_for(client, state, within_s):
    deadline = time.monotonic() + within_s
    while client.state != state and time.monotonic() < deadline:
        time.sleep(0.05)


server = start()
retry = {"max_tries": -1, "delay": 0.1, "max_delay": 0.5}
client = KazooClient(hosts=f"127.0.0.1:{port}", timeout=SESSION_S, connection_retry=retry)
told = []
client.add_listener(lambda state: told.append(str(state)))
client.start()
for number in range(20):
    client.create(f"/node{number}")
stop(server)
time.sleep(4 * SESSION_S)
away = client.state
print(f"away for 4 session time-outs:          {away}, told {told}")
away_told = list(told)
server = start()
wait_for(client, "CONNECTED", 20)
with_data, with_data_told = client.state, list(told)
print(f"back with its data:                    {with_data}, told {told}")
stop(server)
shutil.rmtree(data)
server = start()
time.sleep(5 * SESSION_S)
without_data, last_told = client.state, list(told)
print(f"back without data, 5 time-outs later:  {without_data}, told {told}")
other = KazooClient(hosts=f"127.0.0.1:{port}", timeout=SESSION_S, connection_retry=retry)
other.start()
print(f"a new client:                          {other.state}")
as_described = (
    away == "SUSPENDED" and away_told == ["CONNECTED", "SUSPENDED"]
    and with_data == "CONNECTED" and with_data_told == ["CONNECTED", "SUSPENDED", "CONNECTED"]
    and without_data == "SUSPENDED" and last_told == [*with_data_told, "SUSPENDED"] and other.state == "CONNECTED"
)
sys.stdout.flush()
os._exit(0 if as_described else 1)
PYTHON
venv/bin/python seen.py

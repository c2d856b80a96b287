-- The servers of a shard: slots, clocks, and the writers' transaction numbers.

-- name: lock_servers()
-- Locked: a server takes the lowest free slot next, one at a time.
SELECT slot, seen_at_ms FROM servers ORDER BY slot FOR UPDATE;

-- name: list_servers()
-- With the time of the database.
SELECT slot, name, address, started_at_ms, seen_at_ms, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) FROM servers ORDER BY slot;

-- name: save_program(program)
-- Of this server, for `save_server`.
INSERT IGNORE INTO programs (program) VALUES (:program);

-- name: save_server(slot, incarnation, name, address, now_ms, seen_at_ms, program)
REPLACE INTO servers (slot, incarnation, name, address, started_at_ms, seen_at_ms, program)
VALUES (:slot, :incarnation, :name, :address, :now_ms, :seen_at_ms, :program);

-- name: lock_older_servers(program)
SELECT slot, name, address, seen_at_ms FROM servers WHERE program < :program ORDER BY slot FOR UPDATE;

-- name: delete_older_servers(program)
DELETE FROM servers WHERE program < :program;

-- name: delete_older_programs(program)
-- No server of these gets a slot from now on.
DELETE FROM programs WHERE program < :program;

-- name: renew_server(slot, incarnation)
-- Always changes the row, because the number of changed rows tells whether the slot is still this server's. Where the database's
-- clock was set back, the row follows it: a server seen in the future would count as gone.
UPDATE servers
SET seen_at_ms = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + (seen_at_ms = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))
WHERE slot = :slot AND incarnation = :incarnation;

-- name: announce_server(address, slot, incarnation)
-- Changes nothing where the slot is another server's now.
UPDATE servers SET address = :address WHERE slot = :slot AND incarnation = :incarnation;

-- name: delete_server(slot, incarnation)
-- Changes nothing where the slot is another server's now.
DELETE FROM servers WHERE slot = :slot AND incarnation = :incarnation;

-- name: now()
-- The time of the database.
SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED);

-- name: save_clock(slot, incarnation, ahead_ms)
-- How far the time that this server goes by is ahead of the database's.
REPLACE INTO clocks (slot, incarnation, ahead_ms) VALUES (:slot, :incarnation, :ahead_ms);

-- name: find_clock(slot, incarnation)
-- The time of the database, and how far this server has said that its time is ahead; NULL where it has not.
-- The columns have names, since the text of the last one would be its name, with any bytes in it.
SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) AS now_ms,
  (SELECT ahead_ms FROM clocks WHERE slot = :slot AND incarnation = :incarnation) AS ahead_ms;

-- name: list_clocks(slot)
-- Of the other servers: when each was seen, and how far its time is ahead.
SELECT servers.seen_at_ms, clocks.ahead_ms
FROM servers JOIN clocks ON clocks.slot = servers.slot AND clocks.incarnation = servers.incarnation
WHERE servers.slot <> :slot;

-- name: save_node(slot, incarnation, node)
-- Which machine and port of the database this server is connected to.
REPLACE INTO nodes (slot, incarnation, node) VALUES (:slot, :incarnation, :node);

-- name: list_other_nodes(slot, node)
-- The servers that are connected elsewhere.
SELECT servers.name, nodes.node, servers.seen_at_ms, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)
FROM servers JOIN nodes ON nodes.slot = servers.slot AND nodes.incarnation = servers.incarnation
WHERE servers.slot <> :slot AND nodes.node <> :node;

-- name: lock_writers(first, last)
-- The slot's. Waits for the transactions that its server before still has under way.
SELECT newest FROM writers WHERE writer BETWEEN :first AND :last FOR UPDATE;

-- name: save_writers(rows)
-- Higher numbers than the server before had: its next transaction fails.
INSERT INTO writers (writer, newest) VALUES :rows ON DUPLICATE KEY UPDATE newest = VALUES(newest);

-- name: mark_writer(writer, condition, newest, known)
-- Among the changes of every transaction: a transaction that asks for this row later waits until this one has ended.
-- Gives NULL, which the column refuses, where :known fails (the row has another number than the last one that this writer committed: the
-- slot is another server's now, or this database lacks changes), or where :condition fails.
INSERT INTO writers (writer, newest) VALUES (:writer, IF(:condition, :newest, NULL))
ON DUPLICATE KEY UPDATE newest = IF(:known AND :condition, :newest, NULL);

-- name: list_newest(first, last)
-- What this database knows of the slot's writers. Locks nothing.
SELECT writer, newest FROM writers WHERE writer BETWEEN :first AND :last;

-- name: find_writer(writer)
-- Waits until the writer's transaction has ended, and tells whether it was committed.
SELECT newest FROM writers WHERE writer = :writer FOR UPDATE;

-- name: find_commit(id)
-- Whether the connection is in the middle of a COMMIT, and what the database says that it waits for.
SELECT state FROM information_schema.processlist WHERE id = :id AND info = 'COMMIT';

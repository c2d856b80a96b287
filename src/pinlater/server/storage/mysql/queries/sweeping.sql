-- Maintenance: jobs that become due, deadlines, expiries, keys that have ended, and what deleted queues left.

-- name: maintenance_snapshot(own_first, own_last)
-- Whether there is anything to sweep, in one look: the first row of each index, and the sum of the other writers' newest transaction
-- numbers, which only grow: another sum means that another server has changed something.
SELECT
  (SELECT min(run_after_ms) FROM future),
  (SELECT min(deadline_ms) FROM claims),
  (SELECT min(expires_at_ms) FROM expiries),
  (SELECT min(seen_at_ms) FROM request_keys),
  (SELECT min(until_ms) FROM unique_keys),
  (SELECT count(*) FROM dropped_queues),
  (SELECT sum(newest) FROM writers WHERE writer NOT BETWEEN :own_first AND :own_last);

-- name: lock_future(now_ms, limit)
-- Rows that another transaction has locked are skipped, here and in the statements below.
SELECT queue_id, priority, run_after_ms, id FROM future
WHERE run_after_ms <= :now_ms ORDER BY run_after_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: lock_counted_future(by_ms, limit)
-- The first of them that still wait and count as future (flag 2); rows that another transaction has locked are skipped.
SELECT ready.queue_id, ready.priority, ready.run_after_ms, ready.id FROM future
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = future.queue_id AND ready.priority = future.priority
  AND ready.run_after_ms = future.run_after_ms AND ready.id = future.id
WHERE future.run_after_ms <= :by_ms AND ready.flags & 2
ORDER BY future.run_after_ms, future.id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: select_counted_future(keys)
-- Those that count as future (flag 2), also where another transaction has locked them.
SELECT ready.id FROM JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS due
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = due.queue_id AND ready.priority = due.priority
  AND ready.run_after_ms = due.run_after_ms AND ready.id = due.id
WHERE ready.flags & 2;

-- name: count_as_due(keys)
-- Clears flag 2.
UPDATE JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS due
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = due.queue_id AND ready.priority = due.priority
  AND ready.run_after_ms = due.run_after_ms AND ready.id = due.id
SET ready.flags = ready.flags & ~2;

-- name: delete_expiries(keys)
-- By whole primary keys, in their order.
DELETE expiries FROM JSON_TABLE(:keys, '$[*]' COLUMNS (expires_at_ms BIGINT PATH '$[0]', id BIGINT PATH '$[1]')) AS gone
STRAIGHT_JOIN expiries FORCE INDEX (PRIMARY) ON expiries.expires_at_ms = gone.expires_at_ms AND expiries.id = gone.id;

-- name: list_finished()
-- Queues and priorities with finished jobs, by the counters.
SELECT queue_id, priority, CAST(SUM(succeeded) AS SIGNED), CAST(SUM(failed) AS SIGNED) FROM counters
GROUP BY queue_id, priority HAVING SUM(succeeded) > 0 OR SUM(failed) > 0;

-- name: delete_old_request_keys(before_ms, limit)
DELETE FROM request_keys WHERE seen_at_ms < :before_ms ORDER BY seen_at_ms LIMIT :limit;

-- name: delete_old_unique_keys(now_ms, limit)
-- Those that have ended by time.
DELETE FROM unique_keys WHERE until_ms <= :now_ms ORDER BY until_ms LIMIT :limit;

-- name: delete_timed_keys(now_ms, limit)
-- Those that time alone would free, for the command `pinlater shards`.
DELETE FROM unique_keys WHERE until_ms > :now_ms ORDER BY until_ms LIMIT :limit;

-- name: select_ready_of(queue_id, limit)
-- Of a dropped queue; for `delete_waiting`.
SELECT id, priority, run_after_ms, flags & 2 FROM ready WHERE queue_id = :queue_id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: delete_request_keys_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM request_keys WHERE queue_id = :queue_id LIMIT :limit;

-- name: delete_unique_keys_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM unique_keys WHERE queue_id = :queue_id LIMIT :limit;

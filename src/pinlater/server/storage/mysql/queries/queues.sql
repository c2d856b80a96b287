-- Queues and their counters.

-- name: list_priorities()
-- The priorities that each queue has counters of.
SELECT DISTINCT queue_id, priority FROM counters;

-- name: list_priorities_of(queue_id)
SELECT DISTINCT priority FROM counters WHERE queue_id = :queue_id ORDER BY priority;

-- name: find_queues(names)
SELECT queue_id, name, config FROM queues WHERE name IN (:names);

-- name: select_queues(ids)
-- By id; `find_queues` finds them by name.
SELECT queue_id, name, config FROM queues WHERE queue_id IN (:ids);

-- name: find_settings(name)
-- Without a lock, since most merges change nothing.
SELECT paused, config FROM queues WHERE name = :name;

-- name: insert_queue(name, now_ms)
-- Does nothing where another server has created it.
INSERT IGNORE INTO queues (name, paused, config, created_at_ms) VALUES (:name, 0, '{}', :now_ms);

-- name: lock_queue(name)
-- Locked: its settings are compared next, then saved.
SELECT queue_id, paused, config FROM queues WHERE name = :name FOR UPDATE;

-- name: drop_queues(ids)
-- The queues are gone for every caller; the garbage collection frees their rows.
DELETE FROM queues WHERE queue_id IN (:ids);

-- name: insert_dropped_queues(rows)
-- For the garbage collection, which frees their rows.
INSERT IGNORE INTO dropped_queues (queue_id) VALUES :rows;

-- name: lock_deleted_queue(name)
-- Waits for a deletion under way; see `_merge_locked`.
SELECT deleted_at_ms FROM deleted_queues WHERE name = :name LOCK IN SHARE MODE;

-- name: hold_deleted_queue(name)
-- Locks the row, also where there is none yet; 0 is no deletion.
INSERT INTO deleted_queues (name, deleted_at_ms) VALUES (:name, 0) ON DUPLICATE KEY UPDATE deleted_at_ms = deleted_at_ms;

-- name: save_deleted_queue(deleted_ms, name)
-- Keeps the newest deletion.
UPDATE deleted_queues SET deleted_at_ms = GREATEST(deleted_at_ms, :deleted_ms) WHERE name = :name;

-- name: forget_deleted_queues(before_ms, limit)
DELETE FROM deleted_queues WHERE deleted_at_ms < :before_ms LIMIT :limit;

-- name: check_queues(count, ids)
-- Fails where one of these queues is deleted: the difference is unsigned and may not be negative.
SELECT CAST(COUNT(*) AS UNSIGNED) - :count FROM queues WHERE queue_id IN (:ids);

-- name: add_to_counters(rows, changes)
-- Differences, to the row of this server's own writer. :changes are assignments for the columns in which a difference is not 0.
INSERT INTO counters (queue_id, priority, writer, pending, future, in_progress, succeeded, failed, enqueued_total, claimed_total,
  succeeded_total, failed_total, retried_total)
VALUES :rows ON DUPLICATE KEY UPDATE :changes;

-- name: list_activity(own_first, own_last)
-- What other servers' writers have counted in each queue: other sums than before mean that they changed something there.
SELECT queue_id, priority, CAST(SUM(pending) AS SIGNED), CAST(SUM(enqueued_total) AS SIGNED), CAST(SUM(retried_total) AS SIGNED)
FROM counters WHERE writer NOT BETWEEN :own_first AND :own_last
GROUP BY queue_id, priority;

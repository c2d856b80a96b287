-- Queues and their counters.

-- name: load_queue(queue_id)
SELECT queue_id, name, paused, config FROM queues WHERE queue_id = :queue_id;

-- name: insert_queue(name, paused, config, created_at_ms)
INSERT INTO queues (name, paused, config, created_at_ms) VALUES (:name, :paused, :config, :created_at_ms);

-- name: drop_queue(queue_id)
-- The queue is gone for every caller; the garbage collection frees its rows.
DELETE FROM queues WHERE queue_id = :queue_id;

-- name: insert_dropped_queue(queue_id)
-- For the garbage collection, which frees its rows.
INSERT INTO dropped_queues (queue_id) VALUES (:queue_id);

-- name: save_deleted_queue(name, deleted_at_ms)
-- Keeps the newest deletion.
INSERT INTO deleted_queues (name, deleted_at_ms) VALUES (:name, :deleted_at_ms)
ON CONFLICT (name) DO UPDATE SET deleted_at_ms = max(deleted_at_ms, excluded.deleted_at_ms);

-- name: forget_deleted_queues(before_ms, limit)
DELETE FROM deleted_queues WHERE name IN (SELECT name FROM deleted_queues WHERE deleted_at_ms < :before_ms LIMIT :limit);

-- name: load_counters()
-- mark_ms, mark_id: the due mark (`due_marks.py`).
SELECT queue_id, priority, pending, future, mark_ms, mark_id, in_progress, succeeded, failed, enqueued_total, claimed_total,
  succeeded_total, failed_total, retried_total
FROM counters;

-- name: load_counters_of(queue_id)
SELECT queue_id, priority, pending, future, mark_ms, mark_id, in_progress, succeeded, failed, enqueued_total, claimed_total,
  succeeded_total, failed_total, retried_total
FROM counters
WHERE queue_id = :queue_id
ORDER BY priority;

-- name: save_counter(queue_id, priority, pending, future, mark_ms, mark_id, in_progress, succeeded, failed,
--   enqueued_total, claimed_total, succeeded_total, failed_total, retried_total)
INSERT OR REPLACE INTO counters (queue_id, priority, pending, future, mark_ms, mark_id, in_progress, succeeded, failed,
  enqueued_total, claimed_total, succeeded_total, failed_total, retried_total)
VALUES (:queue_id, :priority, :pending, :future, :mark_ms, :mark_id, :in_progress, :succeeded, :failed,
  :enqueued_total, :claimed_total, :succeeded_total, :failed_total, :retried_total);

-- name: delete_counters(queue_id)
DELETE FROM counters WHERE queue_id = :queue_id;

-- name: select_priorities(queue_id)
-- Those with waiting jobs, in the order in which they are handed out.
SELECT priority FROM counters WHERE queue_id = :queue_id AND pending > 0 ORDER BY priority;

-- Handing out due jobs: from `ready` to `claims`.

-- name: select_due(queue_id, priority, now_ms, limit)
-- In the order of the key of `ready`, so that the rows come without sorting. NULL in place of the body: the job's own row is gone.
SELECT ready.run_after_ms, ready.id, ready.changed, jobs.attempts_allowed, jobs.created_at_ms, jobs.options, jobs.body
FROM ready LEFT JOIN jobs ON jobs.id = ready.id
WHERE ready.queue_id = :queue_id AND ready.priority = :priority AND ready.run_after_ms <= :now_ms
ORDER BY ready.run_after_ms, ready.id
LIMIT :limit;

-- name: select_progress(id)
-- Of a job that has changed since its enqueue.
SELECT attempts_allowed, attempts_remaining, attempts_ended, body FROM progress WHERE id = :id;

-- name: delete_ready_through(queue_id, priority, run_after_ms, id)
-- Exactly the rows that the claim has read: they are the first in the order of the key, and there is one writer.
DELETE FROM ready WHERE queue_id = :queue_id AND priority = :priority AND (run_after_ms, id) <= (:run_after_ms, :id);

-- name: insert_claims_of(queue_id, priority, claimed_at_ms, deadline_ms, timeout_ms, flags, token, source, holder, ids)
-- Many jobs of one call.
INSERT INTO claims (id, queue_id, priority, claimed_at_ms, deadline_ms, timeout_ms, flags, token, source, holder)
SELECT value, :queue_id, :priority, :claimed_at_ms, :deadline_ms, :timeout_ms, :flags, :token, :source, :holder FROM json_each(:ids);

-- name: select_first_ready(queue_id, priority)
-- When the next job is due.
SELECT run_after_ms FROM ready WHERE queue_id = :queue_id AND priority = :priority ORDER BY run_after_ms LIMIT 1;

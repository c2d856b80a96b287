-- Plain acks, all of a call at once. Other acks: `changing.sql`.

-- name: select_claims(ids)
SELECT id, queue_id, priority, flags, token FROM claims WHERE id IN (SELECT value FROM json_each(:ids));

-- name: finish_claims(now_ms, ids)
-- State 2 is SUCCEEDED.
INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder)
SELECT id, queue_id, 2, priority, :now_ms, holder FROM claims WHERE id IN (SELECT value FROM json_each(:ids));

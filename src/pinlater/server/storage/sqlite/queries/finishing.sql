-- Plain acks, all of a call at once. Other acks: `changing.sql`.

-- name: select_claims(ids)
-- The acks are compared with them next.
SELECT claims.id, queue_id, priority, flags, token
FROM json_each(:ids) AS wanted
CROSS JOIN claims ON claims.id = wanted.value;

-- name: finish_claims(now_ms, ids)
-- State 2 is SUCCEEDED.
INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder)
SELECT claims.id, queue_id, 2, priority, :now_ms, holder
FROM json_each(:ids) AS wanted
CROSS JOIN claims ON claims.id = wanted.value;

-- Storing new jobs, with the keys that come with them.

-- name: select_known_ids(ids)
-- Those of the ids that are taken.
SELECT jobs.id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = wanted.id;

-- name: sum_pending(ids)
-- How many jobs wait in each queue, over all writers' counters.
SELECT queue_id, CAST(SUM(pending) AS SIGNED) FROM counters WHERE queue_id IN (:ids) GROUP BY queue_id;

-- name: lock_request_keys(keys)
-- Locked: an answer that has lapsed is deleted next, while another server may store a new one under the same key.
SELECT queue_id, request_key, seen_at_ms, fingerprint, answer, existing FROM request_keys FORCE INDEX (PRIMARY)
WHERE :keys FOR UPDATE;

-- name: insert_request_keys(rows)
-- A key that is taken is an error: the transaction then runs again, and reads the keys first.
INSERT INTO request_keys (queue_id, request_key, seen_at_ms, fingerprint, answer, existing) VALUES :rows;

-- name: delete_request_keys(keys)
-- Those whose answers have lapsed.
DELETE request_keys FROM request_keys FORCE INDEX (PRIMARY) WHERE :keys;

-- name: lock_unique_keys(keys)
-- Locked, for the same reason.
SELECT queue_id, unique_key, id, priority, until_ms FROM unique_keys FORCE INDEX (PRIMARY) WHERE :keys FOR UPDATE;

-- name: delete_unique_keys(keys)
-- Those that have ended.
DELETE unique_keys FROM unique_keys FORCE INDEX (PRIMARY) WHERE :keys;

-- name: save_unique_key(rows)
-- A key that is taken is an error: the transaction then runs again, and reads the keys first.
INSERT INTO unique_keys (queue_id, unique_key, scope, id, priority, until_ms) VALUES :rows;

-- name: find_request_key(queue_id, key)
-- For another shard.
SELECT seen_at_ms, fingerprint, answer, existing FROM request_keys WHERE queue_id = :queue_id AND request_key = :key;

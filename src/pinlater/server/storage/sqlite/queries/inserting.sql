-- Storing new jobs, with the keys that come with them.

-- name: insert_plain_jobs(id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, body)
INSERT INTO jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, body)
VALUES (:id, :queue_id, :priority, :run_after_ms, :attempts_allowed, :created_at_ms, :body);

-- name: insert_ready_after(floor)
-- The new jobs are those above the highest id of before, so this range finds exactly them.
INSERT INTO ready (queue_id, priority, run_after_ms, id, changed)
SELECT queue_id, priority, run_after_ms, id, 0 FROM jobs WHERE id > :floor;

-- name: insert_ready_of(ids)
-- New jobs whose ids are lower than the highest id of before.
INSERT INTO ready (queue_id, priority, run_after_ms, id, changed)
SELECT queue_id, priority, run_after_ms, id, 0 FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: select_known_ids(ids)
-- Those of the ids that are taken.
SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: select_request_keys(queue_id, key)
-- The known ones of many (queue, key) pairs: one look-up of the primary key for each.
SELECT known.queue_id, known.key, known.seen_at_ms, known.fingerprint, known.answer, known.existing
FROM (VALUES (:queue_id, :key)) AS wanted
CROSS JOIN request_keys AS known
WHERE known.queue_id = wanted.column1 AND known.key = wanted.column2;

-- name: find_request_key(queue_id, key)
-- One of them, for another shard.
SELECT seen_at_ms, fingerprint, answer, existing FROM request_keys WHERE queue_id = :queue_id AND key = :key;

-- name: save_request_keys(queue_id, key, seen_at_ms, fingerprint, answer, existing)
-- In place of those that have lapsed.
INSERT OR REPLACE INTO request_keys (queue_id, key, seen_at_ms, fingerprint, answer, existing)
VALUES (:queue_id, :key, :seen_at_ms, :fingerprint, :answer, :existing);

-- name: find_unique_key(queue_id, key)
SELECT id, priority, until_ms FROM unique_keys WHERE queue_id = :queue_id AND key = :key;

-- name: save_unique_key(queue_id, key, scope, id, priority, until_ms)
-- In place of one that has ended by time.
INSERT OR REPLACE INTO unique_keys (queue_id, key, scope, id, priority, until_ms)
VALUES (:queue_id, :key, :scope, :id, :priority, :until_ms);

-- Jobs with ordering keys, for `relational/ordering.py`.

-- name: lock_ordering_keys(rows)
-- A statement of its own, which waits: the statements behind it see what the transaction before has left.
INSERT INTO ordering_keys (queue_id, ordering_key) VALUES :rows
ON DUPLICATE KEY UPDATE queue_id = VALUES(queue_id);

-- name: forget_ordering_keys(keys)
DELETE ordering_keys FROM ordering_keys FORCE INDEX (PRIMARY) WHERE :keys;

-- name: last_numbers(keys)
-- The highest number of each key; NULL if it has no jobs. In the whole order of the index, or MySQL would sort the jobs of the key.
SELECT queue_id, ordering_key, (
  SELECT jobs.number FROM ordered AS jobs FORCE INDEX (ordered_by_key)
  WHERE jobs.queue_id = ordering_keys.queue_id AND jobs.ordering_key = ordering_keys.ordering_key
  ORDER BY jobs.queue_id DESC, jobs.ordering_key DESC, jobs.number DESC LIMIT 1
) FROM ordering_keys FORCE INDEX (PRIMARY) WHERE :keys;

-- name: first_of_keys(keys)
-- The first job of each key, and when it is due by itself; NULL if it has none. As above.
SELECT queue_id, ordering_key, (
  SELECT jobs.id FROM ordered AS jobs FORCE INDEX (ordered_by_key)
  WHERE jobs.queue_id = ordering_keys.queue_id AND jobs.ordering_key = ordering_keys.ordering_key
  ORDER BY jobs.queue_id, jobs.ordering_key, jobs.number LIMIT 1
), (
  SELECT jobs.due_ms FROM ordered AS jobs FORCE INDEX (ordered_by_key)
  WHERE jobs.queue_id = ordering_keys.queue_id AND jobs.ordering_key = ordering_keys.ordering_key
  ORDER BY jobs.queue_id, jobs.ordering_key, jobs.number LIMIT 1
) FROM ordering_keys FORCE INDEX (PRIMARY) WHERE :keys;

-- name: first_places(queue_id, key, limit)
SELECT queue_id, ordering_key, id, due_ms FROM ordered FORCE INDEX (ordered_by_key)
WHERE queue_id = :queue_id AND ordering_key = :key ORDER BY queue_id, ordering_key, number LIMIT :limit;

-- name: mark_places(keys)
UPDATE JSON_TABLE(:keys, '$[*]' COLUMNS (id BIGINT PATH '$[0]', due_ms BIGINT PATH '$[1]')) AS marked
STRAIGHT_JOIN ordered FORCE INDEX (PRIMARY) ON ordered.id = marked.id
SET ordered.due_ms = marked.due_ms;

-- name: select_configs(ids)
SELECT queue_id, config FROM queues WHERE queue_id IN (:ids);

-- name: hold_configs(ids)
-- As `select_configs`; the rows stay as they are until the transaction has ended.
SELECT queue_id, config FROM queues WHERE queue_id IN (:ids) LOCK IN SHARE MODE;

-- name: load_ordered(ids)
SELECT id, queue_id, ordering_key, due_ms FROM ordered FORCE INDEX (PRIMARY) WHERE id IN (:ids);

-- name: find_place_in_key(id)
-- The key and the number of a job that has not ended.
SELECT queue_id, ordering_key, number FROM ordered WHERE id = :id;

-- name: find_ahead_in_key(queue_id, key, number, limit)
-- The first job of a key, and how many come before a number; reads :limit entries of the key at most.
SELECT (
  SELECT id FROM ordered FORCE INDEX (ordered_by_key) WHERE queue_id = :queue_id AND ordering_key = :key ORDER BY queue_id, ordering_key, number LIMIT 1
), COUNT(*) FROM (
  SELECT 1 FROM ordered FORCE INDEX (ordered_by_key) WHERE queue_id = :queue_id AND ordering_key = :key AND number < :number LIMIT :limit
) AS before_it;

-- name: count_ordered(queue, limit)
-- Without those whose jobs are gone: nothing waits for them. No EXISTS: MariaDB would read all jobs for it.
SELECT COUNT(*) FROM (
  SELECT 1 FROM ordered FORCE INDEX (ordered_by_key)
  LEFT JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = ordered.id
  LEFT JOIN kept_jobs FORCE INDEX (PRIMARY) ON kept_jobs.id = ordered.id
  WHERE ordered.queue_id = (SELECT queue_id FROM queues WHERE name = :queue)
    AND coalesce(jobs.id, kept_jobs.id) IS NOT NULL LIMIT :limit
) AS some;

-- name: next_ordering_keys(queue_id, after, limit)
-- The keys that have jobs, behind one. There is a row of each, but for moments.
SELECT ordering_key FROM ordering_keys FORCE INDEX (PRIMARY)
WHERE queue_id = :queue_id AND ordering_key > :after ORDER BY queue_id, ordering_key LIMIT :limit;

-- name: insert_ordered(rows)
INSERT INTO ordered (id, queue_id, ordering_key, number, due_ms) VALUES :rows;

-- name: delete_ordered_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM ordered WHERE queue_id = :queue_id LIMIT :limit;

-- name: delete_ordering_keys_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM ordering_keys WHERE queue_id = :queue_id LIMIT :limit;

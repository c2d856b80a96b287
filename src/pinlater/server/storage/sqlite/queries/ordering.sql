-- Jobs with ordering keys, for `relational/ordering.py`.

-- name: last_numbers(queue_id, key)
-- The highest number of each key that has jobs.
SELECT column1, column2, number
FROM (VALUES (:queue_id, :key)) AS wanted
CROSS JOIN ordered ON queue_id = column1 AND ordering_key = column2 AND number = (
  SELECT number FROM ordered WHERE queue_id = column1 AND ordering_key = column2 ORDER BY number DESC LIMIT 1
);

-- name: first_of_keys(queue_id, key)
-- The first job of each key, and when it is due by itself; NULL if it has none.
SELECT column1, column2, id, due_ms
FROM (VALUES (:queue_id, :key)) AS wanted
LEFT JOIN ordered ON queue_id = column1 AND ordering_key = column2 AND number = (
  SELECT number FROM ordered WHERE queue_id = column1 AND ordering_key = column2 ORDER BY number LIMIT 1
);

-- name: first_places(queue_id, key, limit)
SELECT queue_id, ordering_key, id, due_ms FROM ordered
WHERE queue_id = :queue_id AND ordering_key = :key ORDER BY number LIMIT :limit;

-- name: mark_places(id, due_ms)
UPDATE ordered SET due_ms = :due_ms WHERE id = :id;

-- name: load_ordered(ids)
SELECT id, queue_id, ordering_key, due_ms FROM ordered WHERE id IN (SELECT value FROM json_each(:ids));

-- name: find_place_in_key(id)
-- The key and the number of a job that has not ended.
SELECT queue_id, ordering_key, number FROM ordered WHERE id = :id;

-- name: find_ahead_in_key(queue_id, key, number, limit)
-- The first job of a key, and how many come before a number; reads :limit entries of the key at most.
SELECT (
  SELECT id FROM ordered WHERE queue_id = :queue_id AND ordering_key = :key ORDER BY number LIMIT 1
), COUNT(*) FROM (
  SELECT 1 FROM ordered WHERE queue_id = :queue_id AND ordering_key = :key AND number < :number LIMIT :limit
);

-- name: count_ordered(queue, limit)
-- Without those whose jobs are gone: nothing waits for them.
SELECT COUNT(*) FROM (
  SELECT 1 FROM ordered CROSS JOIN jobs ON jobs.id = ordered.id
  WHERE ordered.queue_id = (SELECT queue_id FROM queues WHERE name = :queue) LIMIT :limit
);

-- name: next_ordering_keys(queue_id, after, limit)
-- The keys that have jobs, behind one; a seek for each.
WITH RECURSIVE found (ordering_key, place) AS (
  SELECT MIN(ordering_key), 1 FROM ordered WHERE queue_id = :queue_id AND ordering_key > :after
  UNION ALL
  SELECT (SELECT MIN(ordering_key) FROM ordered WHERE queue_id = :queue_id AND ordering_key > found.ordering_key), place + 1
  FROM found WHERE ordering_key IS NOT NULL AND place < :limit
)
SELECT ordering_key FROM found WHERE ordering_key IS NOT NULL;

-- name: insert_ordered(id, queue_id, ordering_key, number, due_ms)
INSERT INTO ordered (id, queue_id, ordering_key, number, due_ms)
VALUES (:id, :queue_id, :ordering_key, :number, :due_ms);

-- name: select_next(behind_ms, ids)
-- The first other jobs of the keys of jobs that have ended, which wait: queue, priority, place among the waiting jobs and own due time.
-- NULL in place of the priority: it does not wait behind others, or its own rows are gone. Nothing for a key that has no other job.
SELECT ended.id AS ended_id, next.id AS next_id, next.queue_id, ready.priority, ready.run_after_ms, next.due_ms, ready.changed
FROM json_each(:ids) AS wanted
CROSS JOIN ordered AS ended ON ended.id = wanted.value
CROSS JOIN ordered AS next ON next.id = (
  SELECT id FROM ordered
  WHERE queue_id = ended.queue_id AND ordering_key = ended.ordering_key AND number <> ended.number ORDER BY number LIMIT 1
)
LEFT JOIN jobs ON jobs.id = next.id
LEFT JOIN ready ON ready.queue_id = next.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = :behind_ms + next.number AND ready.id = next.id;

-- name: move_ready(queue_id, priority, run_after_ms, id, due_ms)
UPDATE ready SET run_after_ms = :due_ms
WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms = :run_after_ms AND id = :id;

-- name: set_due(due_ms, id)
-- {table}: `jobs` or `progress`. In place, since the new time takes as many bytes.
UPDATE {table} SET run_after_ms = :due_ms WHERE id = :id;

-- name: delete_ordered_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM ordered WHERE queue_id = :queue_id AND id IN (SELECT id FROM ordered WHERE queue_id = :queue_id LIMIT :limit);

-- Jobs with ordering keys, for `relational/ordering.py`.

-- name: last_numbers(queue_id, key)
-- The highest number of each key; NULL if it has no jobs.
SELECT column1, column2, (
  SELECT number FROM ordered WHERE queue_id = column1 AND ordering_key = column2 ORDER BY number DESC LIMIT 1
) FROM (VALUES (:queue_id, :key)) AS wanted;

-- name: first_of_keys(queue_id, key)
-- The first job of each key; NULL if it has none.
SELECT column1, column2, (
  SELECT id FROM ordered WHERE queue_id = column1 AND ordering_key = column2 ORDER BY number LIMIT 1
) FROM (VALUES (:queue_id, :key)) AS wanted;

-- name: load_ordered(ids)
SELECT id, queue_id, ordering_key, due_ms, behind FROM ordered WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_ordered(id, queue_id, ordering_key, number, due_ms, behind)
INSERT INTO ordered (id, queue_id, ordering_key, number, due_ms, behind)
VALUES (:id, :queue_id, :ordering_key, :number, :due_ms, :behind);

-- name: let_go(id)
-- A job that is ready from now on.
UPDATE ordered SET behind = 0 WHERE id = :id;

-- name: delete_ordered_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM ordered WHERE queue_id = :queue_id AND id IN (SELECT id FROM ordered WHERE queue_id = :queue_id LIMIT :limit);

-- Those of these jobs that still wait, are counted as future, and that nobody else has in hand.
SELECT ready.queue_id, ready.priority, ready.run_after_ms, ready.id FROM JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS due
STRAIGHT_JOIN ready ON ready.queue_id = due.queue_id AND ready.priority = due.priority
  AND ready.run_after_ms = due.run_after_ms AND ready.id = due.id
WHERE ready.flags & 2
FOR UPDATE SKIP LOCKED

-- Those that are counted as future, also where somebody has them in hand.
SELECT ready.id FROM JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS due
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = due.queue_id AND ready.priority = due.priority
  AND ready.run_after_ms = due.run_after_ms AND ready.id = due.id
WHERE ready.flags & 2

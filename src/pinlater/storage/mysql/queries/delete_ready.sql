-- By whole primary keys, in their order.
DELETE ready FROM JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS gone
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = gone.queue_id AND ready.priority = gone.priority
  AND ready.run_after_ms = gone.run_after_ms AND ready.id = gone.id

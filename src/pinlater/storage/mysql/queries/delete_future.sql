DELETE future FROM JSON_TABLE(:keys, '$[*]' COLUMNS (run_after_ms BIGINT PATH '$[0]', id BIGINT PATH '$[1]')) AS gone
STRAIGHT_JOIN future FORCE INDEX (PRIMARY) ON future.run_after_ms = gone.run_after_ms AND future.id = gone.id

-- A page in key order. The index is forced, since by that on the state the server might sort every waiting job for each page. What only
-- wanted jobs need stays behind for the others. UNIX_TIMESTAMP makes 0 of a zero date.
SELECT local_id, state, attempts_remaining, UNIX_TIMESTAMP(run_after), UNIX_TIMESTAMP(created_at),
  IF(state IN ({states}), custom_status, NULL), IF(state IN ({states}), body, NULL)
FROM {table} FORCE INDEX (PRIMARY)
WHERE local_id >= {first}
ORDER BY local_id
LIMIT {rows}

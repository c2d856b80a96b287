-- All that tells whether there is anything to do, in one look: the first of each index, and the writers' newest
-- transactions, whose numbers only grow: another sum means that somebody has changed something.
SELECT
  (SELECT min(run_after_ms) FROM future),
  (SELECT min(deadline_ms) FROM claims),
  (SELECT min(expires_at_ms) FROM expiries),
  (SELECT min(seen_at_ms) FROM request_keys),
  (SELECT min(until_ms) FROM unique_keys),
  (SELECT count(*) FROM dropped_queues),
  (SELECT sum(newest) FROM writers WHERE writer NOT BETWEEN :own_first AND :own_last)

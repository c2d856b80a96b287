SELECT servers.seen_at_ms, clocks.ahead_ms
FROM servers JOIN clocks ON clocks.slot = servers.slot AND clocks.incarnation = servers.incarnation
WHERE servers.slot <> :slot

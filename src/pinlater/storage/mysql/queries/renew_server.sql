UPDATE servers SET seen_at_ms = :seen_at_ms WHERE slot = :slot AND incarnation = :incarnation

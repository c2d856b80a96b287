REPLACE INTO clocks (slot, incarnation, ahead_ms) VALUES (:slot, :incarnation, :ahead_ms)

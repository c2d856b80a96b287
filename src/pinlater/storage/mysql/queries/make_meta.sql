-- The first of several servers decides.
INSERT IGNORE INTO meta (name, value) VALUES (:name, :value)

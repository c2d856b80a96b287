DELETE FROM progress WHERE id IN (SELECT value FROM json_each(?))

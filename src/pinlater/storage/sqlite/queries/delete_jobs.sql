DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?))

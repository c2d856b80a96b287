UPDATE claims SET deadline_ms = ?, flags = ? WHERE id = ?

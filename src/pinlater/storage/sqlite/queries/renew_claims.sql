UPDATE claims SET deadline_ms = ?2, flags = ?3 WHERE id = ?1

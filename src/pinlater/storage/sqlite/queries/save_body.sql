UPDATE progress SET body = ? WHERE id = ?

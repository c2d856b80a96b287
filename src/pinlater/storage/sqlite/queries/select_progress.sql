SELECT attempts_allowed, attempts_remaining, attempts_ended, body FROM progress WHERE id = ?

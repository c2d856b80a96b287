DELETE FROM request_keys WHERE :keys

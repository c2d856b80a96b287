DELETE FROM unique_keys WHERE :keys

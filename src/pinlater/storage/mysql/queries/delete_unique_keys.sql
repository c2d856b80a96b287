DELETE unique_keys FROM unique_keys FORCE INDEX (PRIMARY) WHERE :keys

DELETE request_keys FROM request_keys FORCE INDEX (PRIMARY) WHERE :keys

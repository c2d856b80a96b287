"""The Redis store: a shard is all keys with one hash tag in a Redis or Valkey database. Entry points: `shard.RedisShard`, and
`settings` (which imports no driver).
"""

"""The Redis store: one shard is one hash slot's worth of keys in a Redis or Valkey database. Entry points: `shard.RedisShard`, and
`settings` (which imports no driver).
"""

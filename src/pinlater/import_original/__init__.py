"""Copies the waiting jobs of an original PinLater's MySQL tables into a running server, for `pinlater server import-original`.

Uses the public client and a MySQL driver, and no part of the server: `source` reads the old tables, `copy` enqueues their jobs. Only
`source` loads the driver, which is an extra.
"""

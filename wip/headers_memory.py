"""Headers of remembered jobs count for nothing: 16 MiB "kept" are several hundred MB."""
import tracemalloc, json, sys
from pinlater.server.storage.mysql.ready_jobs import *
from pinlater.server.storage.options import Options
size = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
used = ReadyBytes(); ready = ReadyJobs(used); ready.search_begins(0); ready.search_found_all([], None, 0.0)
tracemalloc.start(); n = 0
while used.used <= BYTES_MAX and n < 60000:
    headers = {}
    left = size
    while left > 0:   # many short ones
        headers["%04x" % (left)] = "x%d" % left; left -= 9
    ready.add(ReadyJob(1, 10**12 + n, 10**15 + n, 3, 10**12 + n, b"x", Options(headers=headers))); n += 1
    if n == 3000: break
mem = tracemalloc.get_traced_memory()[0]
full = BYTES_MAX // 301
print(f"{mem/n:.0f} bytes a job that counts as 301; {mem/n*full/2**20:.0f} MiB when the memory is 'full' with {full} jobs")

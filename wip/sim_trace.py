"""Who did what for the request of producer1-4 in seed 2143633203."""
import sys
from pinlater.server.operations import shard_router as r
from pinlater.server.operations import unsettled_requests as u
from pinlater.server.sharding import shard_lanes
import tests.simulation.run as run
orig = r.ShardRouter._store_keyed
async def keyed(self, shard, queue, jobs, now_ms, key, fp):
    mine = b"producer1-4-0" in [j.body for j in jobs]
    fw = shard.lanes_of(queue.name) is not shard
    if mine: print(self._clock.now_ms(), f"router {id(self)%10000} key {key} sends to", shard.name, "forwarded", fw, "unsettled", self._unsettled.shard_of(queue.name, key))
    try:
        x = await orig(self, shard, queue, jobs, now_ms, key, fp)
        if mine: print(self._clock.now_ms(), f"router {id(self)%10000} stored on", shard.name)
        return x
    except BaseException as e:
        if mine: print(self._clock.now_ms(), f"router {id(self)%10000}", shard.name, repr(e))
        raise
r.ShardRouter._store_keyed = keyed
of = r.ShardRouter._find
async def find(self, queue, whole, parts, fp):
    try:
        x = await of(self, queue, whole, parts, fp); print(self._clock.now_ms(), f"router {id(self)%10000} find {whole.key}:", x); return x
    except BaseException as e:
        print(self._clock.now_ms(), f"router {id(self)%10000} find", whole.key, repr(e)); raise
r.ShardRouter._find = find
oi = shard_lanes.ShardLanes._insert
async def ins(self, requests):
    mine = any(b"producer1-4-0" in [j.body for j in q.jobs] for q in requests)
    if mine: print(self.clock.now_ms(), f"lanes {self.name} of {id(self)%10000} slot {self.unguarded.slot} insert begins; begin_by", [q.begin_by_ms for q in requests])
    try:
        x = await oi(self, requests)
        if mine: print(self.clock.now_ms(), f"lanes {self.name} {id(self)%10000} insert done")
        return x
    except BaseException as e:
        if mine: print(self.clock.now_ms(), f"lanes {self.name} {id(self)%10000} insert", repr(e))
        raise
shard_lanes.ShardLanes._insert = ins
ow = run.Run._was_overtaken
def was(self, places):
    stored_by = {store.name: store.stored_by for store in self.cluster.stores}
    print("places", places, [stored_by[s][j] for s, j in places]); return ow(self, places)
run.Run._was_overtaken = was
from tests.simulation.run import simulate, LARGE
print("\n".join(simulate(2143633203, LARGE).broken))

"""Random histories of several servers against a model. JEP_SEEDS=a-b, JEP_STEPS."""
from __future__ import annotations
import asyncio, os, itertools
from random import Random
import pytest
from pinlater.domain.errors import PinLaterError, OutcomeUnknown
from pinlater.domain.job import Holder, JobState, UniqueKey, UniqueScope
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.outcomes import *
from pinlater.server.storage.values import *
from tests.contract.desk import Desk
from tests.mysql.rig import LIMITS, Rig, COMMIT
a, b = map(int, os.environ.get("JEP_SEEDS", "0-3").split("-"))
STEPS = int(os.environ.get("JEP_STEPS", "300"))
FAULTS = os.environ.get("JEP_FAULTS", "") == "1"
HELD_MAX = int(os.environ.get("JEP_HELD_MS", "2300"))
Q = "emails"

class J:
    def __init__(s, key, run, body, attempts, headers, exp, now):
        s.key, s.run, s.body, s.allowed, s.headers, s.exp = key, run, body, attempts, headers, exp
        s.remaining = attempts; s.attempt = 1; s.state = "P"; s.since = max(now, run); s.token = None; s.until = 0; s.maybe = False

@pytest.mark.parametrize("kind", ["mariadb"])
@pytest.mark.parametrize("seed", range(a, b))
async def test_random(rig: Rig, seed: int) -> None:
    dice = Random(seed)
    tokens = itertools.count()
    class Clock: pass
    first = await rig.desk(direct=True)
    clock = first.clock
    n = dice.choice([2, 3])
    desks = []
    for i in range(n):
        def make():
            sh = MysqlShard(rig.endpoint(direct=not (FAULTS and i < 2)), MysqlSettings(**LIMITS), monotonic=clock.monotonic)
            rig._stack.push_async_callback(sh.close)
            return sh
        d = Desk(make); d.clock = clock; await d.open(); desks.append(d)
    owner_mode = dice.choice(["one", "both", "moves", "mixed"])
    jobs: dict[int, J] = {}
    stats = dict(claims=0, got=0, maxheld=0)
    owner = 0
    ended_at = []
    def is_alone(i):
        if owner_mode == "one": return i == 0 and dice.random() < 0.97
        if owner_mode == "both": return True
        if owner_mode == "moves": return i == owner
        return dice.random() < 0.6
    def due(j, now): return j.state == "P" and j.run <= now and not (j.exp is not None and j.exp <= now)
    log = []
    def wrong(text):
        raise AssertionError(f"seed {seed} mode {owner_mode} step {step}: {text}\n" + "\n".join(log[-25:]))
    def check(i, alone, limits, claimed, now, token):
        got = [j for js in claimed.jobs for j in js]
        stats["claims"] += 1; stats["got"] += len(got)
        for t, js in zip(token, claimed.jobs):
            for h in js:
                j = jobs.get(h.id)
                if j is None: wrong(f"unknown job {h.id}")
                if j.state == "C" and j.until > now and not j.maybe and getattr(j, 'touched', -1) != step: wrong(f"job {h.id} twice within claim: {j.token} until {j.until} now {now}")
                if j.state not in "P" and not j.maybe and getattr(j, 'touched', -1) != step: wrong(f"job {h.id} is {j.state}")
                if not j.maybe:
                    if h.run_after_ms > now or h.run_after_ms != j.run and getattr(j, 'touched', -1) != step: wrong(f"job {h.id} run-after {h.run_after_ms} model {j.run} now {now}")
                    if j.exp is not None and j.exp <= now: wrong(f"job {h.id} past its expiry")
                    if getattr(j, 'touched', -1) == step: pass
                    elif (h.body, h.headers or None, h.attempt) != (j.body, j.headers, j.attempt): wrong(f"job {h.id}: {h} model {vars(j)}")
                    if getattr(j, 'touched', -1) == step: pass
                    elif h.attempts_allowed != j.allowed or h.attempts_remaining != j.remaining: wrong(f"attempts {h} model {vars(j)}")
                j.state, j.token, j.until = "C", t, h.claimed_until_ms if hasattr(h, "claimed_until_ms") else h[9]
                j.attempt = h.attempt; j.allowed, j.remaining = h.attempts_allowed, h.attempts_remaining
                j.maybe = False
        return lambda: passed(i, alone, limits, claimed, now, got)
    def passed(i, alone, limits, claimed, now, got):
        lacking = len(got) < sum(limits)
        last = max(((h.priority, h.run_after_ms, h.id) for h in got), default=(0, 0, 0))
        for j in jobs.values():
            if due(j, now) and not j.maybe and (lacking or (j.key.priority, j.run, j.key.id) < last):
                held = now - j.since
                stats["maxheld"] = max(stats["maxheld"], held)
                if held > HELD_MAX: wrong(f"job {vars(j)} passed over {held} ms after it was there; alone={alone} server {i}, got {len(got)} of {limits}")
        if lacking and claimed.next_due_ms is None and alone is False:
            pass
    async def do_claim(i, alone):
        d = desks[i]; now = clock.now_ms()
        limits = [dice.choice([1, 1, 2, 3, 10]) for _ in range(dice.choice([1, 1, 2]))]
        t = [f"k{next(tokens)}" for _ in limits]
        tmo = dice.choice([300, 2_000, 20_000])
        order = ClaimOrder(Q, [ClaimCall(l, Holder("d", "worker", x), 2**24) for l, x in zip(limits, t)], tmo, alone=alone)
        try:
            [c] = await d.shard.claim_jobs([order], now)
        except OutcomeUnknown:
            for j in jobs.values():
                if j.state == "P": j.maybe = True
            log.append("claim outcome unknown"); return
        if isinstance(c, PinLaterError): wrong(f"claim: {c!r}")
        log.append(f"{now} server {i} claim alone={alone} {limits} {t}: {[(h.id % 100000, h.priority, h.attempt) for js in c.jobs for h in js]} due {c.next_due_ms}")
        return lambda: check(i, alone, limits, c, now, t)
    async def op(i, k=1):
        d = desks[i]; now = clock.now_ms()
        r = dice.random()
        held = [j for j in jobs.values() if j.state == "C" and j.until > now + 5 and not j.maybe and not getattr(j, "busy", False)]
        if r < 0.30:
            new = []
            for _ in range(dice.choice([1, 1, 2, 5])):
                k = about = dict(priority=dice.randrange(1, 4), attempts=dice.randrange(1, 4), body=b"%d" % next(tokens))
                if dice.random() < .2: k["delay_ms"] = dice.randrange(1, 1500)
                if dice.random() < .15: k["expires_in_ms"] = dice.randrange(50, 5000)
                if dice.random() < .2: k["headers"] = {"h": "%d" % next(tokens)}
                if dice.random() < .1: k["unique"] = UniqueKey(f"u{next(tokens)}", dice.choice(list(UniqueScope)), 10_000)
                if dice.random() < .1: k["claim_timeout_ms"] = 500
                body = k.pop("body")
                nj = d.job(body, **k); new.append(nj)
            key = f"rk{next(tokens)}"
            try:
                req = InsertRequest(Q, new, request_key=key, fingerprint=b"f")
                [res] = await d.shard.insert_jobs([req], now)
                if dice.random() < .05: await d.shard.insert_jobs([req], now)
            except OutcomeUnknown:
                log.append("insert outcome unknown")
                def later():
                    for nj in new:
                        j = jobs[nj.id] = J(JobKey(Q, nj.priority, nj.id), nj.run_after_ms, nj.body, nj.attempts_allowed, nj.headers, nj.expires_at_ms, now); j.maybe = True
                return later
            assert isinstance(res, Inserted), res
            log.append(f"{now} server {i} put {[(x.id % 100000, x.priority, x.run_after_ms - now, x.expires_at_ms) for x in new]}")
            for nj in new:
                jobs[nj.id] = J(JobKey(Q, nj.priority, nj.id), nj.run_after_ms, nj.body, nj.attempts_allowed, nj.headers, nj.expires_at_ms, now)
        elif r < 0.62:
            return await do_claim(i, is_alone(i))
        elif held and r < 0.90:
            j = dice.choice(held); j.busy = True; j.touched = step
            try:
                w = dice.random()
                if w < .35:
                    acks = [JobAck(j.key, True, j.token)]
                    [x] = await d.shard.finish_jobs(acks, now); what = "ok"
                elif w < .65:
                    [x] = await d.shard.finish_jobs([JobAck(j.key, False, j.token, "", dice.choice([0, 0, 0, 300, 1200]), dice.random() < .1)], now); what = "fail"
                elif w < .85:
                    [x] = await d.shard.release_jobs([ClaimRef(j.key, j.token, dice.choice([0, 0, 0, 400]))], now); what = "release"
                else:
                    back = dice.random() < .7; nb = dice.choice([None, b"cp%d" % next(tokens)]); al = dice.choice([None, 2])
                    [x] = await d.shard.checkpoint_jobs([JobCheckpoint(j.key, "worker", j.token, nb, back, now + dice.choice([0, 0, 500]) if back else None, al)], now); what = "checkpoint"
                    if isinstance(x, Acked):
                        if nb is not None: j.body = nb
                        if al is not None: j.allowed = al; j.remaining = al
                        if back: pass
            except OutcomeUnknown:
                j.maybe = True; log.append(f"outcome unknown {j.key.id}"); return
            finally:
                j.busy = False
            if isinstance(x, PinLaterError): wrong(f"{what}: {x!r}")
            log.append(f"{now} server {i} {what} {j.key.id % 100000}: {x.outcome} {x.state} {x.due_at_ms}")
            if x.outcome.name in ("NOT_FOUND", "STALE_CLAIM"): wrong(f"{what} of held job {vars(j)}: {x}")
            await sync(d, j, now)
        elif r < 0.93 and k == 1:
            await d.shard.advance_due(now, 1000)
            sw = await d.shard.time_out_claims(now, 1000); ex = await d.shard.expire_jobs(now, 1000)
            return lambda: None
        elif r >= 0.93 and r < 0.96:
            await d.shared.changed_queues()
    async def sync(d, j, now):
        """What the store says of the job, as the truth of its state (not of its attempts or body before it ran)."""
        s = await d.find(j.key)
        old = j.state
        if s is None: j.state = "X"; return
        j.state = {JobState.PENDING: "P", JobState.IN_PROGRESS: "C", JobState.SUCCEEDED: "S", JobState.FAILED: "F"}[s.state]
        if j.state == "P":
            j.run = s.run_after_ms if hasattr(s, "run_after_ms") else j.run
            j.since = max(now, j.run) if old != "P" or j.maybe else j.since
            j.remaining = s.attempts_remaining; j.allowed = s.attempts_allowed
            j.maybe = False
            j.body_now = s.body
            if s.body != j.body and not j.maybe: j.body = s.body if FAULTS else (wrong(f"body {s.body} model {j.body}") or s.body)
        elif j.state == "C":
            pass
        else:
            j.maybe = False
    step = 0
    try:
        for step in range(STEPS):
            w = dice.random()
            if w < .12:
                clock.advance(ms=dice.choice([1, 5, 50, 200, 600, 1100, 3000]))
            elif w < .14 and owner_mode == "moves":
                owner = dice.randrange(n)
            elif w < .16:   # cancel, run now, retry, purge: alone
                d = dice.choice(desks); now = clock.now_ms()
                cand = [j for j in jobs.values() if j.state in "PCF"]
                if cand:
                    j = dice.choice(cand)
                    if dice.random() < .5: [x] = await d.shard.cancel_jobs([j.key], now)
                    else: [x] = await d.shard.run_jobs([RunOrder(j.key, 2, now)], now)
                    log.append(f"{now} cancel/run {j.key.id % 100000} {x.outcome}")
                    jj = j.since; await sync(d, j, now)
                    if dice.random() < .3: await d.retry_failed(priority=dice.randrange(1, 4))
                    if dice.random() < .1: await d.purge(dice.choice([JobState.PENDING, JobState.FAILED]), priority=dice.randrange(1, 4), limit=3)
            elif w < .165:
                d = dice.choice(desks); log.append("delete + create")
                clock.advance(ms=2)
                await d.shard.delete_queues([Q]); clock.advance(ms=2)
                await dice.choice(desks).shard.create_queues([Q], clock.now_ms())
                jobs.clear()
            elif FAULTS and w < .19:
                k = dice.random()
                log.append("fault")
                if k < .6: rig.proxy.lose_answer(COMMIT)
                elif k < .8: rig.proxy.cut()
                else: rig.proxy.lose_request(COMMIT)
            else:
                k = dice.choice([1, 1, 2, 3])
                results = await asyncio.gather(*(op(dice.randrange(n), k) for _ in range(k)))
                # resync all that may have moved by sweeps: from the store
                now = clock.now_ms()
                for g in [f() for f in results if f is not None]:
                    if g is not None: g()
            # the truth of states: pending jobs put back by sweeps etc.
            if jobs:
                ks = [j.key for j in jobs.values() if j.state in "PCF" or j.maybe]
                found = await first.shard.lookup_jobs(ks, bodies=True)
                ended = dict(await rig.ask('SELECT id, attempts_ended FROM progress'))
                now = clock.now_ms()
                for k2, s in zip(ks, found):
                    j = jobs[k2.id]
                    if s is None: j.state = "X"; j.maybe = False; continue
                    st = {JobState.PENDING: "P", JobState.IN_PROGRESS: "C", JobState.SUCCEEDED: "S", JobState.FAILED: "F"}[s.state]
                    if st == "P":
                        if j.state != "P" or j.maybe or j.run != s.run_after_ms: j.since = max(now, s.run_after_ms)
                        j.run, j.remaining, j.allowed, j.body = s.run_after_ms, s.attempts_remaining, s.attempts_allowed, s.body
                        j.attempt = ended.get(k2.id, 0) + 1
                    if st == "C" and j.state == "C" or st != "C":
                        j.maybe = False
                    if st == "C" and j.state == "P" and not j.maybe:
                        if FAULTS or getattr(j, 'touched', -1) == step: j.maybe = True
                        else: wrong(f"job {k2.id} is claimed in the store and nobody got it")
                    j.state = st
                    if st == "C" and j.until < now: pass
            if step % 50 == 49:
                await rig.assert_consistent(deleted=True)
                for d in desks:
                    c = d.shard._queue_cache
                    kept = sum(len(x.body) + 300 for q in c.by_id.values() for x in q.ready._jobs)
                    if c._ready_bytes.used != kept: log.append(f"LEAK used {c._ready_bytes.used} kept {kept}"); stats["leak"] = c._ready_bytes.used - kept
        rig.proxy.heal()
        await rig.assert_consistent(deleted=True)
    finally:
        print(f"\nseed {seed} {owner_mode} n={n}: {step + 1} steps {stats} jobs {len(jobs)} misjudged/settled {[ (d.shard.stats.settled, d.shard.stats.round_trips) for d in desks]}")

-- Ends claims with plain successes: all of them, or nothing happens.
--   ARGV[3] now, in ms        ARGV[4] now, 8 bytes
--   ARGV[5] {names of the queues, their ids}        ARGV[6] refs        ARGV[7] tokens, see `finish_plain`
-- Answers {0, queue, due, ...} done, with what is ready now as `change_jobs.lua` says it; or {1, positions} (from 1) of those that aren't
-- plain: they must be loaded and decided on.
local again = before()
if again then
    return again
end
local names, ids = unpack(cmsgpack.unpack(ARGV[5]))
if stale(names, ids) then
    return redis.error_reply(STALE)
end
local odd, ended = finish_plain(refs_of(ARGV[6]), strings(ARGV[7]), ARGV[3], ARGV[4])
if odd then
    return { 1, odd }
end
local answer = { 0 }
leave_ended(ended, answer)
return done(answer)

-- ARGV: session or nothing, claim, owner, TTL, spare, force, hidden, principal, same
-- principal, any agent, agents…
local sid, id, owner, ttl, spare = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local agents = {}
for i = 13, #ARGV do
	agents[ARGV[i]] = true
end

local function matches(s) return ARGV[12] == '1' or s.agent == '' or agents[s.agent] end

local function claimable(s) return readyAt(s) <= now and matches(s) and not spared(s, spare) end

local function take(s)
	local was = copy(s)
	create(s, ARGV[10], tonumber(ARGV[9]))
	endLease(s)
	redis.call('DEL', key('w', s.id))
	s.ep = s.ep + 1
	s.cid, s.own, s.ttl = id, owner, ttl
	renew(s)
	if id ~= '' then
		redis.call('HSET', P .. ':c', id, s.id)
	end
	return {'ok', save(s, was), s.id, n(now)}
end

if id ~= '' then
	local before = sid
	if before == '' then
		before = redis.call('HGET', P .. ':c', id)
	end
	if before then
		local s = load(before)
		if s.alive == 1 and s.cid == id and s.own == owner then
			renew(s)
			schedule(s)
			store(s)
			return {'ok', row(s), s.id, n(now)}
		end
	end
end

if sid ~= '' then
	local s = load(sid)
	if s.alive == 1 and ARGV[11] == '1' and s.prin ~= ARGV[10] then
		return {'exists'}
	end
	if ARGV[8] == '1' or s.alive == 1 and claimable(s) then
		return take(s)
	end
	return {'nothing'}
end

-- After a loss, leases have ended that the index does not know of.
local swept = tonumber(redis.call('HGET', P .. ':g', 'swept') or '0')
if swept < base then
	for _, other in ipairs(redis.call('ZRANGE', P .. ':d', 0, -1)) do
		load(other)
	end
	redis.call('HSET', P .. ':g', 'swept', n(base))
end
local from = 0
while true do
	local ready = redis.call('ZRANGEBYSCORE', P .. ':d', '-inf', n(now), 'LIMIT', from, 100)
	for _, other in ipairs(ready) do
		local s = load(other)
		if claimable(s) then
			return take(s)
		end
		from = from + 1
		schedule(s)
		store(s)
	end
	if #ready < 100 then
		return {'nothing'}
	end
end

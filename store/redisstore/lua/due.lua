-- When a claim may find something. ARGV: claim, spare, session or nothing, any agent,
-- agents… It answers whether, now, and since when or when.
local spare = tonumber(ARGV[4])
local agents = {}
for i = 7, #ARGV do
	agents[ARGV[i]] = true
end
local function wanted(agent) return ARGV[6] == '1' or agent == '' or agents[agent] end

if ARGV[5] ~= '' then
	local s = load(ARGV[5])
	local at = readyAt(s)
	if s.alive == 0 or not wanted(s.agent) then
		at = NEVER
	elseif spare > 0 and at < NEVER then
		at = math.max(at, s.exp + spare)
	end
	return {'ok', at <= now and '1' or '0', n(now), n(at)}
end
if tonumber(redis.call('HGET', P .. ':g', 'swept') or '0') < base or ARGV[3] ~= '' and redis.call('HEXISTS', P .. ':c', ARGV[3]) == 1 then
	return {'ok', '1', n(now), '0'} -- before all others
end
local at, from = NEVER, 0
while true do
	local ready = redis.call('ZRANGEBYSCORE', P .. ':d', '-inf', n(now), 'LIMIT', from, 100)
	for _, sid in ipairs(ready) do
		local s = peek(sid)
		if s and wanted(s.agent) then
			if not spared(s, spare) then
				return {'ok', '1', n(now), n(tonumber(redis.call('ZSCORE', P .. ':d', sid)))}
			end
			at = math.min(at, s.exp + spare)
		end
	end
	from = from + #ready
	if #ready < 100 then
		break
	end
end
local next = redis.call('ZRANGEBYSCORE', P .. ':d', '(' .. n(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if #next > 0 then
	at = math.min(at, tonumber(next[2]))
end
return {'ok', '0', n(now), n(at)}

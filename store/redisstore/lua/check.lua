-- Notices that records may have been lost: this server is not the one that was noted, or
-- does not run on. KEYS[1] is the tag of a bucket. Numbers that are given out from then on
-- are above all that were: they begin with the time, in seconds.
local P = KEYS[1]
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local role = string.match(info, 'role:(%a+)')
if role ~= 'master' then
	return {'replica'}
end
local id = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')
local noted = redis.call('HMGET', P .. ':g', 'id', 'base')
if noted[1] ~= id then
	local clock = redis.call('TIME')
	local base = math.max(tonumber(noted[2] or '0') + 1048576, clock[1] * 1048576)
	redis.call('HSET', P .. ':g', 'id', id, 'base', string.format('%.0f', base))
	if not noted[2] then
		redis.call('HSET', P .. ':g', 'swept', string.format('%.0f', base)) -- there are no leases
	end
end
return {'ok', id}

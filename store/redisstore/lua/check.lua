-- Notices that records may have been lost: this server is not the one that was noted, or
-- does not run on, and nobody can say that nothing is missing. KEYS[1] is the tag of a bucket. Numbers that are given out from then on
-- are above all that were: they begin with the time, in seconds.
--
-- ARGV is what the process saw when it looked last (server, clock, base, whether the server
-- was safe, node), or empty strings, and what the servers said of their settings just now: a
-- list of " NODE=1", of those that sync each write, and " NODE=0". The last one is set if there
-- is no time to ask a server that is not on the list. See witness.go.
local P = KEYS[1]
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication') .. redis.call('INFO', 'persistence')
local function is(field, value) return string.find(info, '\n' .. field .. ':' .. value .. '\r', 1, true) ~= nil end

if not is('role', 'master') then
	return {'replica'}
end
local run = string.match(info, 'run_id:(%x+)')
local id = run .. string.match(info, 'master_replid:(%x+)')
local node = ''
if is('redis_mode', 'cluster') then
	node = redis.pcall('CLUSTER', 'MYID')
	if type(node) ~= 'string' then
		node = 'unknown'
	end
end
local synced = string.match(ARGV[6], ' ' .. node .. '=(%d)')
if not synced and ARGV[7] == '0' then
	return {'ask'}
end
local never = is('master_replid2', string.rep('0', 40)) -- it was no replica
-- A server is safe if it ends with all that it acknowledged, and no replica can take its place.
local safe = synced == '1' and never and node ~= 'unknown' and is('connected_slaves', '0') and is('repl_backlog_active', '0') and
	is('aof_enabled', '1') and is('aof_rewrite_in_progress', '0') and is('aof_rewrite_scheduled', '0') and is('aof_last_write_status', 'ok')

local noted = redis.call('HMGET', P .. ':g', 'id', 'base', 'last', 'was', 'upto')
local base, last = tonumber(noted[2] or '0'), tonumber(noted[3] or '0')
local saw, at, under = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function lost()
	local clock = redis.call('TIME')
	base = math.max(base + 1048576, clock[1] * 1048576)
	redis.call('HSET', P .. ':g', 'id', id, 'base', string.format('%.0f', base))
	redis.call('HDEL', P .. ':g', 'was', 'upto')
	if not noted[2] then
		redis.call('HSET', P .. ':g', 'swept', string.format('%.0f', base)) -- there are no leases
	end
end

if noted[1] ~= id then
	-- The process saw the server until just before: what it saw is there, and little came after.
	local whole = saw == noted[1] and under == base and at <= last and last - at <= 2000 and never
	if whole and string.sub(saw, 1, 40) ~= run then -- otherwise it runs on, and got its first replica
		whole = safe and ARGV[4] == '1' and ARGV[5] == node
	end
	if whole then
		redis.call('HSET', P .. ':g', 'id', id, 'was', saw, 'upto', string.format('%.0f', last))
	else
		lost()
	end
elseif saw ~= '' and under == base then -- no loss was noticed since the process looked
	local whole = saw == id and at <= last or saw == noted[4] and at <= tonumber(noted[5])
	if not whole then
		lost()
	end
end
return {'ok', id, string.format('%.0f', last), string.format('%.0f', base), safe and '1' or '0', node}

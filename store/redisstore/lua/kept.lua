-- ARGV: session, kind, name
local s = load(ARGV[3])
local value = false
if ARGV[4] == 'b' or s.alive == 1 then
	value = redis.call('HGET', key(ARGV[4], s.id), ARGV[5])
end
return {'ok', s.alive == 1 and '1' or '0', value}

-- ARGV: session, kind (f for folds, b for blobs), name, value
local s = load(ARGV[3])
if ARGV[4] == 'f' then
	if s.alive == 0 then
		return {'notfound'}
	end
	redis.call('HSET', key('f', s.id), ARGV[5], ARGV[6])
elseif redis.call('HSETNX', key('b', s.id), ARGV[5], ARGV[6]) == 1 then
	s.bytes = s.bytes + #ARGV[6]
	store(s)
end
return {'ok'}

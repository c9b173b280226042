-- ARGV: session, incarnation, epoch, by how much
local s = load(ARGV[3])
if s.alive == 0 then
	return {'notfound'}
end
local incarnation, epoch, by = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if s.inc <= incarnation then
	local was = copy(s)
	s.inc, s.ep = incarnation + by, math.max(s.ep, epoch) + by
	endLease(s)
	redis.call('DEL', key('w', s.id))
	save(s, was)
end
return {'ok', row(s)}

-- ARGV: session, idle since, or nothing for any
local s = load(ARGV[3])
if s.alive == 0 then
	return {'notfound'}
end
if ARGV[4] ~= '' then
	local idle = tonumber(ARGV[4])
	if idle > 0 and s.upd > now - idle or s.exp > now then
		return {'busy'}
	end
end
local was = copy(s)
endLease(s)
gone(s)
save(s, was)
return {'ok'}

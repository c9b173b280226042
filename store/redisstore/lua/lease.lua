-- ARGV: session, epoch, what (renew or release)
local s = load(ARGV[3])
local mine = s.alive == 1 and s.ep == tonumber(ARGV[4])
if ARGV[5] == 'release' then
	if mine then
		endLease(s)
		schedule(s)
		store(s)
	end
	return {'ok'}
end
if not mine or s.own == '' then
	return {'superseded'}
end
renew(s)
schedule(s)
store(s)
return {'ok'}

-- ARGV: session, trace floor, floor
local s = load(ARGV[3])
if s.alive == 0 then
	return {'notfound'}
end
local fl = math.max(s.fl, math.min(tonumber(ARGV[5]), s.seq))
local tf = math.max(s.tf, math.min(tonumber(ARGV[4]), s.seq), fl)
if fl ~= s.fl or tf ~= s.tf then
	local was = copy(s)
	s.fl, s.tf = fl, tf
	save(s, was)
end
return {'ok'}

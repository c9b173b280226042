-- Removes some of the records below the floors. ARGV: session
local s = load(ARGV[3])
local left = 500
local function free(class, floor)
	local gone = redis.call('XRANGE', key(class, s.id), '-', '0-' .. n(floor), 'COUNT', left)
	if #gone == 0 then
		return
	end
	left = left - #gone
	for _, e in ipairs(gone) do
		s.bytes = s.bytes - #e[2][4]
	end
	local seq = tonumber(string.sub(gone[#gone][1], 3))
	redis.call('XTRIM', key(class, s.id), 'MINID', '0-' .. n(seq + 1))
end
if s.alive == 1 then
	free('t', s.tf)
	if left > 0 then
		free('k', s.fl)
	end
	store(s)
end
return {'ok', left > 0 and '0' or '1'}

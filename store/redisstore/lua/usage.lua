-- ARGV: how many rows to pass over, principal or nothing
local from = tonumber(ARGV[3])
local index = P .. ':l'
if ARGV[4] ~= '' then
	index = index .. ':' .. ARGV[4]
end
local ids = redis.call('ZRANGE', index, from, from + 999)
local count, bytes, largest, oldest = 0, 0, 0, 0
for _, sid in ipairs(ids) do
	local s = peek(sid)
	local b, u = s and s.bytes or 0, s and s.upd or 0
	count, bytes, largest = count + 1, bytes + b, math.max(largest, b)
	if oldest == 0 or u < oldest then
		oldest = u
	end
end
return {'ok', n(now), n(count), n(bytes), n(largest), n(oldest)}

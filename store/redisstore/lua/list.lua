-- ARGV: hidden, principal, status, idle for, a place's time and session, most
local idle, most = tonumber(ARGV[6]), tonumber(ARGV[9])
local since = idle > 0 and now - idle or NEVER
local index = P .. (ARGV[3] == '1' and ':x' or ':l')
if ARGV[4] ~= '' then
	index = index .. ':' .. ARGV[4]
end
local placed, at = ARGV[7] ~= '', tonumber(ARGV[7] ~= '' and ARGV[7] or '0')
local high = placed and math.min(since, at) or since
local out = {'ok', n(now)}

-- comes compares bytes: how Lua compares depends on the server's language.
local function comes(a, b)
	for i = 1, math.min(#a, #b) do
		local x, y = string.byte(a, i), string.byte(b, i)
		if x ~= y then
			return x < y
		end
	end
	return #a < #b
end

-- Sessions of one time are in the order of their ids: the index has them the other way
-- round when it is read from its end, so each time is read whole.
local max = n(high)
while true do
	local top = redis.call('ZREVRANGEBYSCORE', index, max, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
	if #top == 0 then
		return out
	end
	local score = top[2]
	local same = redis.call('ZRANGEBYSCORE', index, score, score)
	for _, sid in ipairs(same) do
		if not placed or tonumber(score) < at or comes(ARGV[8], sid) then
			local s = load(sid)
			if s.alive == 1 and (ARGV[5] == '' or s.st == ARGV[5]) then
				out[#out + 1] = s.id
				s.upd = tonumber(score) -- by which the list is in order
				out[#out + 1] = row(s)
			end
		end
	end
	if (#out - 2) / 2 >= most then
		return out
	end
	max = '(' .. score
end

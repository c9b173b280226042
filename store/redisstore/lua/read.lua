-- ARGV: session, kind (all, kept or back), a sequence, most records, most bytes
local sid, kind, at, most, bytes = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local s = load(sid)
if s.alive == 0 then
	return {'ok', row(s)}
end
if kind == 'all' and at < s.tf or kind == 'kept' and at < s.fl then
	return {'trimmed', row(s)}
end

-- page returns a stream's next records, in pages that grow while the records are small.
local function page(class)
	local out, size, count = {}, 0, 16
	local from, to = '0-' .. n(at + 1), '+'
	if kind == 'back' then
		from = at > 0 and '0-' .. n(at - 1) or '+'
		to = '0-' .. n(s.fl + 1)
		if at == 1 then
			return out
		end
	end
	while #out < most and size < bytes do
		local got = redis.call(kind == 'back' and 'XREVRANGE' or 'XRANGE', key(class, sid), from, to, 'COUNT', math.min(count, most - #out))
		for _, e in ipairs(got) do
			out[#out + 1] = e
			size = size + #e[2][4]
		end
		if #got < count then
			break
		end
		from = '(' .. got[#got][1]
		if size < 65536 then
			count = math.min(count * 4, 500)
		end
	end
	return out
end

if kind == 'all' then
	if at >= s.seq then
		return {'ok', row(s)}
	end
	return {'ok', row(s), page('k'), page('t')}
end
return {'ok', row(s), page('k')}

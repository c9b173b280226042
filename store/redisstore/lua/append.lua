-- ARGV: session, epoch, writer, ordinal, status, agent, principal, title, seen, next,
-- show, same principal, records…
local sid, epoch, writer, ordinal = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local s = load(sid)
if epoch > 0 then
	if s.alive == 0 or s.ep ~= epoch then
		return {'superseded'}
	end
	if ordinal > 0 then
		local w = redis.call('HGET', key('w', sid), writer)
		if w then
			local last, first, to = string.match(w, '(%d+) (%d+) (%d+)')
			last = tonumber(last)
			if ordinal < last then
				return {'later'}
			elseif ordinal == last then
				renew(s)
				schedule(s)
				store(s)
				return {'ok', row(s), first, to, '1'}
			end
		else
			local others = redis.call('HLEN', key('w', sid))
			if others >= tonumber(ARGV[15]) then
				return {'writers', n(others)}
			end
		end
	end
	renew(s)
elseif s.alive == 1 then
	if s.hid == 1 then
		return {'notfound'}
	elseif ARGV[14] == '1' and s.prin ~= ARGV[9] then
		return {'exists'}
	end
end

local was = copy(s)
create(s, ARGV[9], 0)
s.upd = now
local first = s.seq + 1
local hint = add(s, 16)
if ARGV[7] ~= '' then
	s.st = ARGV[7]
end
if ARGV[8] ~= '' then
	s.agent = ARGV[8]
end
if ARGV[10] ~= '' then
	s.title = ARGV[10]
end
if epoch == 0 then
	s.cmd, s.pend = s.seq, 1
	if s.due == 0 or s.due > now then
		s.due = now
	end
elseif ARGV[11] ~= '' and s.cmd <= tonumber(ARGV[11]) then
	s.due, s.pend = tonumber(ARGV[12]), 0
end
if ARGV[13] == '1' then
	s.hid = 0
end
if epoch > 0 and ordinal > 0 then
	redis.call('HSET', key('w', sid), writer, n(ordinal) .. ' ' .. n(first) .. ' ' .. n(s.seq))
end
return {'ok', save(s, was, hint), n(first), n(s.seq), '0'}

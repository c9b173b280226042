-- ARGV: session, epoch, after, done, head (seq, inc, ep, tf, fl, status, due, pending),
-- principal, agent, title, updated, records…
local s = load(ARGV[3])
local epoch, after, done = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local seq, inc, ep, tf, fl = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
if s.alive == 0 then
	return {'superseded'}
elseif s.hid == 0 then
	return {'exists'}
elseif s.ep ~= epoch then
	return {'superseded'}
elseif after ~= 0 and (after ~= s.seq or tf < s.tf or fl < s.fl) then
	return {'follow'}
end
local was = copy(s)
renew(s)
if after == 0 then
	redis.call('UNLINK', key('k', s.id), key('t', s.id))
	s.seq, s.tf, s.fl, s.bytes = 0, 0, 0, 0
	for _, hash in ipairs(redis.call('HKEYS', key('b', s.id))) do
		s.bytes = s.bytes + redis.call('HSTRLEN', key('b', s.id), hash)
	end
end
s.tf, s.fl = math.max(s.tf, tf), math.max(s.fl, fl)
s.inc = math.max(s.inc, inc)
s.prin = ARGV[15]
add(s, 19, true)
if done then
	s.seq, s.ep = seq, math.max(s.ep, ep) + 1
	s.st, s.due, s.pend, s.hid = ARGV[12], tonumber(ARGV[13]), tonumber(ARGV[14]), 0
	s.agent, s.title, s.upd = ARGV[16], ARGV[17], tonumber(ARGV[18])
	s.cmd = s.pend == 1 and s.seq or 0
	endLease(s)
	redis.call('DEL', key('w', s.id))
end
return {'ok', save(s, was)}

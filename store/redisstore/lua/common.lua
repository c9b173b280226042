-- KEYS[1] is the tag of a bucket, before the names of its keys. ARGV[1] is what the clock
-- is set off by, and ARGV[2] the command that publishes.
local P = KEYS[1]
local NEVER = 9007199254740991
local noted = redis.call('HMGET', P .. ':g', 'base', 'last', 'ahead')
if not noted[1] then
	return {'nobase'} -- the database is empty: see check.lua
end
local base = tonumber(noted[1])

local function n(x) return string.format('%.0f', x) end

local clock = redis.call('TIME')
local wall = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[1])

-- The store's clock never goes back: where the server's has, it goes on from the last time
-- that was noted, which is each tenth of a second.
local last, ahead = tonumber(noted[2] or '0'), tonumber(noted[3] or '0')
local now = math.max(wall + ahead, last)
if now - last >= 100 or now ~= wall + ahead then
	redis.pcall('HSET', P .. ':g', 'last', n(now), 'ahead', n(now - wall)) -- a full memory refuses it
end

local function key(kind, sid) return P .. ':' .. kind .. ':' .. sid end

local function readyAt(s)
	if s.alive == 0 or s.hid == 1 then
		return NEVER
	end
	local at = NEVER
	if s.st == 'active' then
		at = s.exp
	end
	if s.due ~= 0 then
		at = math.min(at, math.max(s.due, s.exp))
	end
	return at
end

local function spared(s, spare) return spare > 0 and s.exp > now - spare end

local function endLease(s)
	if s.cid ~= '' then
		redis.call('HDEL', P .. ':c', s.cid)
	end
	s.cid, s.own, s.ttl, s.exp = '', '', 0, 0
end

local function renew(s)
	if s.own ~= '' then
		s.exp = now + s.ttl
	end
end

-- packed is a row as it is stored.
local function packed(s)
	return cmsgpack.pack(s.alive, s.seq, s.inc, s.ep, s.tf, s.fl, s.due, s.pend, s.hid, s.upd, s.bytes, s.ver,
		s.cmd, s.base, s.ttl, s.exp, s.ready, s.st, s.prin, s.agent, s.title, s.cid, s.own)
end

-- peek returns a session's row as it is stored; nil if the session never was.
local function peek(sid)
	local stored = redis.call('GET', key('h', sid))
	if not stored then
		return nil
	end
	local alive, seq, inc, ep, tf, fl, due, pend, hid, upd, bytes, ver,
		cmd, base, ttl, exp, ready, st, prin, agent, title, cid, own = cmsgpack.unpack(stored)
	return {id = sid, stored = stored, alive = alive, seq = seq, inc = inc, ep = ep, tf = tf, fl = fl, due = due, pend = pend,
		hid = hid, upd = upd, bytes = bytes, ver = ver, cmd = cmd, base = base, ttl = ttl, exp = exp, ready = ready, st = st,
		prin = prin, agent = agent, title = title, cid = cid, own = own}
end

-- row is what is answered of a row: see parseRow in rows.go.
local function row(s)
	return string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', s.alive, s.seq, s.inc, s.ep, s.tf, s.fl,
		s.due, s.pend, s.hid, s.upd, s.bytes, s.ver) .. '\0' .. s.st .. '\0' .. s.prin .. '\0' .. s.agent .. '\0' .. s.title
end

-- index puts the session where listings find it. was is the row before the change, or nil.
local function index(s, was)
	local function places(s)
		local kind = s.hid == 1 and ':x' or ':l'
		return P .. kind, P .. kind .. ':' .. s.prin
	end
	if was and was.alive == 1 and (s.alive == 0 or was.hid ~= s.hid or was.prin ~= s.prin) then
		local all, own = places(was)
		redis.call('ZREM', all, s.id)
		redis.call('ZREM', own, s.id)
	end
	if s.alive == 1 then
		local all, own = places(s)
		redis.call('ZADD', all, n(s.upd), s.id)
		redis.call('ZADD', own, n(s.upd), s.id)
	end
end

-- schedule puts the session where claims find it.
local function schedule(s, retagged)
	local ready = readyAt(s)
	if ready ~= s.ready then
		if ready == NEVER then
			redis.call('ZREM', P .. ':d', s.id)
		else
			redis.call('ZADD', P .. ':d', n(ready), s.id)
		end
	end
	if ready < s.ready or retagged and ready ~= NEVER then
		redis.call(ARGV[2], P .. ':n', '')
	end
	s.ready = ready
end

-- store writes a row that changed.
local function store(s)
	local now = packed(s)
	if now ~= s.stored then
		redis.call('SET', key('h', s.id), now)
		s.stored = now
	end
end

-- published is what waiters are told: the row, and the latest records if they are small.
local function published(shown, records)
	local out = {#shown, ':', shown}
	for i, v in ipairs(records or {}) do
		out[3 * i + 1], out[3 * i + 2], out[3 * i + 3] = #v, ':', v
	end
	return table.concat(out)
end

-- save writes a row whose head may have changed, and tells waiters. It returns the row as it
-- is answered.
local function save(s, was, records)
	s.ver = s.ver + 1
	schedule(s, was and was.agent ~= s.agent)
	store(s)
	-- The index has a second's first change: listings may lag.
	local second = not was or math.floor(was.upd / 1000) ~= math.floor(s.upd / 1000)
	if second or was.alive ~= s.alive or was.hid ~= s.hid or was.prin ~= s.prin then
		index(s, was)
	end
	local shown, channel = row(s), key('n', s.id)
	if records and #records > 12 then -- copying them costs more than asking
		local count = redis.pcall('PUBSUB', ARGV[2] == 'PUBLISH' and 'NUMSUB' or 'SHARDNUMSUB', channel)
		if count[2] == 0 then
			return shown
		end
	end
	redis.call(ARGV[2], channel, published(shown, records))
	return shown
end

-- copy returns what of a row save compares; nil if the session never was.
local function copy(s)
	if not s.stored then
		return nil
	end
	return {alive = s.alive, upd = s.upd, hid = s.hid, prin = s.prin, agent = s.agent}
end

-- load returns a session's row, which is not stored yet if the session never was. If records
-- may have been lost since it was written, its numbers are raised first, and its lease ends.
local function load(sid)
	local s = peek(sid)
	if not s then
		s = {id = sid, alive = 0, seq = 0, inc = 0, ep = 0, tf = 0, fl = 0, due = 0, pend = 0, hid = 0, upd = 0, bytes = 0, ver = base,
			cmd = 0, base = base, ttl = 0, exp = 0, ready = NEVER, st = '', prin = '', agent = '', title = '', cid = '', own = ''}
	elseif s.base < base then
		s.base = base
		if s.inc > 0 then
			s.inc, s.ep = math.max(s.inc + 1, base), math.max(s.ep + 1, base)
		end
		endLease(s)
		s.ver = math.max(s.ver, base)
		redis.call('DEL', key('w', sid))
		save(s, copy(s))
	end
	return s
end

local function create(s, principal, hidden)
	if s.alive == 1 then
		return
	end
	if s.inc > 0 then
		s.ep = s.ep + 1
	end
	s.inc, s.ep = math.max(s.inc + 1, base + 1), math.max(s.ep, base)
	s.alive, s.seq, s.tf, s.fl, s.st, s.due, s.pend = 1, 0, 0, 0, 'ended', 0, 0
	s.hid, s.prin, s.agent, s.title, s.upd, s.cmd = hidden, principal, '', '', now, 0
end

local function gone(s)
	s.alive, s.seq, s.tf, s.fl, s.st, s.due, s.pend, s.hid = 0, 0, 0, 0, '', 0, 0, 0
	s.prin, s.agent, s.title, s.upd, s.bytes, s.cmd = '', '', '', 0, 0, 0
	redis.call('UNLINK', key('k', s.id), key('t', s.id), key('w', s.id), key('f', s.id), key('b', s.id))
end

-- add stores records, which are a class, a header and the data each.
local function add(s, from, seqs)
	local hint, size, keys = {}, 0, {k = key('k', s.id), t = key('t', s.id)}
	for i = from, #ARGV, seqs and 4 or 3 do
		local class, header, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
		if seqs then
			s.seq = tonumber(ARGV[i + 3])
		else
			s.seq = s.seq + 1
		end
		if class == 'k' or not seqs or s.seq > s.tf then
			redis.call('XADD', keys[class], string.format('0-%.0f', s.seq), 'h', header, 'd', data)
		end
		s.bytes = s.bytes + #data
		size = size + #data + #header
		if size <= 16384 then
			hint[#hint + 1] = class
			hint[#hint + 1] = header
			hint[#hint + 1] = data
		end
	end
	if size > 16384 then
		return nil
	end
	return hint
end

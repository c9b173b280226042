ALTER TABLE meta ADD COLUMN applied integer NOT NULL DEFAULT 1;

-- append_group makes a group of appends with one statement. The appends are sorted by session,
-- so that all transactions lock rows in one order. Of each append there are seven numbers:
-- epoch, ordinal, number of records, bytes of their data, what Settle has seen (-1: there is
-- none) and its next time, and a sum of 1 for SamePrincipal and 2 for Show; and eight texts:
-- session, the same as JSON, writer, status, agent, title, principal, and the records for
-- notifications as JSON ('': they are too large). The result has a row for each append: its code
-- (see append.go), the sequences of its records, and the session's state after it.
CREATE FUNCTION append_group(
  g_sender text,       -- the name of the sender, in notifications
  g_channel text,
  g_blank bigint,      -- incarnation and epoch of a session that never existed
  g_version bigint,    -- the first version of a row
  g_writers integer,   -- how many an epoch has at most
  g_ahead bigint,      -- by how much the store's clock is ahead of the server's
  g_floor bigint,      -- a time that was given out before
  a_numbers bigint[],
  a_texts text[],
  r_append integer[],  -- which append a record is of, from 1
  r_type text[],
  r_agent text[],
  r_time bigint[],
  r_trace smallint[],
  r_data bytea[]
) RETURNS TABLE (o_code integer, o_first bigint, o_last bigint, o_sooner integer, o_wall bigint, o_now bigint, o_version bigint,
  o_alive boolean, o_seq bigint, o_incarnation bigint, o_trace_floor bigint, o_floor bigint, o_epoch bigint, o_status text,
  o_due bigint, o_pending boolean, o_hidden boolean, o_principal text)
LANGUAGE plpgsql AS $append$
DECLARE
  never CONSTANT bigint := 9223372036854775807;
  n CONSTANT integer := cardinality(a_numbers) / 7;
  sids bigint[] := array_fill(0::bigint, ARRAY[n]);  -- of each append that is stored
  bases bigint[] := array_fill(0::bigint, ARRAY[n]); -- the sequence of a record, less its place in the group
  i integer := 0;                                    -- the append, from 0
  a integer := 0;                                    -- its numbers are after this one
  b integer := 0;                                    -- and its texts after this one
  place bigint := 0;                                 -- of its first record, from 0
  session_id text;
  epoch_ bigint;
  ordinal_ bigint;
  count_ bigint;
  s session%ROWTYPE;
  w writer%ROWTYPE;
  there boolean;   -- the session has a row
  changed boolean; -- and it has to be written
  at bigint;
  due_ integer := 0;
  hints text;
  piece text;
  body text := '';
BEGIN
  o_now := g_floor;
  WHILE i < n LOOP
    session_id := a_texts[b + 1];
    SELECT * INTO s FROM session WHERE id = session_id FOR NO KEY UPDATE;
    there := FOUND;
    IF NOT there THEN
      s.alive := false; s.seq := 0; s.incarnation := 0; s.trace_floor := 0; s.floor := 0; s.epoch := 0; s.status := '';
      s.due := 0; s.pending := false; s.hidden := false; s.principal := ''; s.version := 0;
    END IF;
    s.ready := coalesce(s.ready, never);
    o_wall := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    o_now := greatest(o_now, o_wall + g_ahead, s.updated, s.lease_expires - s.lease_ttl);
    changed := false;
    hints := '';
    LOOP
      epoch_ := a_numbers[a + 1];
      ordinal_ := a_numbers[a + 2];
      count_ := a_numbers[a + 3];
      o_code := 0; o_first := 0; o_last := 0; o_sooner := 0;
      -- Whether the caller may append.
      IF epoch_ = 0 THEN
        IF NOT there THEN
          INSERT INTO session (id, version) VALUES (session_id, g_version) ON CONFLICT DO NOTHING;
          SELECT * INTO s FROM session WHERE id = session_id FOR NO KEY UPDATE;
          s.ready := coalesce(s.ready, never);
          there := true;
        END IF;
        IF s.alive AND s.hidden THEN
          o_code := 2;
        ELSIF s.alive AND a_numbers[a + 7] & 1 = 1 AND s.principal <> a_texts[b + 7] THEN
          o_code := 3;
        END IF;
      ELSIF NOT s.alive OR s.epoch <> epoch_ THEN
        o_code := 4;
      ELSE
        changed := true;
        -- An extension by less than a thirty-second of the TTL is not worth an update of the index.
        IF s.lease_owner <> '' AND o_now + s.lease_ttl - s.lease_expires >= s.lease_ttl / 32 THEN
          s.lease_expires := o_now + s.lease_ttl;
        END IF;
        IF ordinal_ > 0 THEN
          UPDATE writer SET ordinal = ordinal_, first = s.seq + 1, last = s.seq + count_
            WHERE sid = s.sid AND name = a_texts[b + 3] AND ordinal < ordinal_;
          IF NOT FOUND THEN
            SELECT * INTO w FROM writer WHERE sid = s.sid AND name = a_texts[b + 3];
            IF FOUND THEN
              o_code := CASE WHEN w.ordinal = ordinal_ THEN 1 ELSE 5 END;
              o_first := w.first; o_last := w.last;
            ELSIF s.writers >= g_writers THEN
              o_code := 6;
            ELSE
              INSERT INTO writer (sid, name, ordinal, first, last) VALUES (s.sid, a_texts[b + 3], ordinal_, s.seq + 1, s.seq + count_);
              s.writers := s.writers + 1;
            END IF;
          END IF;
        END IF;
      END IF;

      IF o_code = 0 THEN
        changed := true;
        IF NOT s.alive THEN
          IF s.incarnation = 0 THEN
            s.incarnation := g_blank; s.epoch := g_blank;
          END IF;
          s.epoch := CASE WHEN s.incarnation > 0 THEN s.epoch + 1 ELSE 0 END;
          s.incarnation := s.incarnation + 1;
          s.alive := true; s.status := 'ended'; s.principal := a_texts[b + 7]; s.agent := ''; s.title := '';
          s.seq := 0; s.trace_floor := 0; s.floor := 0; s.due := 0; s.pending := false; s.hidden := false;
        END IF;
        s.updated := o_now;
        sids[i + 1] := s.sid;
        bases[i + 1] := s.seq - place;
        o_first := s.seq + 1;
        s.seq := s.seq + count_;
        o_last := s.seq;
        s.bytes := s.bytes + a_numbers[a + 4];
        IF a_texts[b + 4] <> '' THEN
          s.status := a_texts[b + 4];
        END IF;
        IF a_texts[b + 5] <> '' AND a_texts[b + 5] <> s.agent THEN
          o_sooner := 1; -- wakes those that wait for this agent's sessions
          s.agent := a_texts[b + 5];
        END IF;
        IF a_texts[b + 6] <> '' THEN
          s.title := a_texts[b + 6];
        END IF;
        IF epoch_ = 0 THEN
          s.last_command := s.seq;
          s.pending := true;
          IF s.due = 0 OR s.due > o_now THEN
            s.due := o_now;
          END IF;
        ELSIF s.last_command <= a_numbers[a + 5] THEN
          s.due := a_numbers[a + 6];
          s.pending := false;
        END IF;
        IF s.hidden AND a_numbers[a + 7] >= 2 THEN
          s.hidden := false;
        END IF;
        -- Without a part of them the others would be useless.
        hints := CASE WHEN a_texts[b + 8] = '' THEN NULL ELSE hints || ',{"after":' || o_first - 1 || ',"records":' || a_texts[b + 8] || '}' END;
      END IF;

      at := never;
      IF s.alive AND NOT s.hidden THEN
        IF s.status = 'active' THEN
          at := s.lease_expires;
        END IF;
        IF s.due <> 0 THEN
          at := least(at, greatest(s.due, s.lease_expires));
        END IF;
      END IF;
      IF at < s.ready THEN
        o_sooner := o_sooner + 1;
      END IF;
      s.ready := at;
      due_ := due_ + o_sooner;
      o_version := s.version + changed::integer; o_alive := s.alive; o_seq := s.seq; o_incarnation := s.incarnation; o_trace_floor := s.trace_floor;
      o_floor := s.floor; o_epoch := s.epoch; o_status := s.status; o_due := s.due; o_pending := s.pending; o_hidden := s.hidden;
      o_principal := s.principal;
      RETURN NEXT;
      i := i + 1; a := a + 7; b := b + 8; place := place + count_;
      EXIT WHEN i = n OR a_texts[b + 1] <> session_id;
    END LOOP;
    CONTINUE WHEN NOT changed;

    UPDATE session SET alive = true, seq = s.seq, incarnation = s.incarnation, trace_floor = s.trace_floor, floor = s.floor,
      epoch = s.epoch, status = s.status, due = s.due, last_command = s.last_command, pending = s.pending, hidden = s.hidden,
      agent = s.agent, principal = s.principal, title = s.title, updated = s.updated, listed = s.updated / 10000, bytes = s.bytes,
      lease_expires = s.lease_expires, ready = nullif(s.ready, never), version = s.version + 1, writers = s.writers
    WHERE id = session_id;
    piece := '{"session":' || a_texts[b - 6] || ',"version":' || s.version + 1 || ',"exists":true,"head":{"Seq":' || s.seq || ',"Incarnation":' || s.incarnation
      || ',"TraceFloor":' || s.trace_floor || ',"Floor":' || s.floor || ',"Epoch":' || s.epoch || ',"Status":' || to_json(s.status)::text
      || ',"Due":' || s.due || ',"Pending":' || s.pending || ',"Hidden":' || s.hidden || ',"Principal":' || to_json(s.principal)::text || '}';
    IF hints <> '' AND octet_length(body) + octet_length(piece) + octet_length(hints) <= 7700 THEN
      piece := piece || ',"appended":[' || substr(hints, 2) || ']';
    END IF;
    piece := piece || '}';
    IF body <> '' AND octet_length(body) + octet_length(piece) > 7700 THEN
      PERFORM pg_notify(g_channel, '{"from":"' || g_sender || '","due":' || due_ || ',"sessions":[' || body || ']}');
      body := '';
      due_ := 0;
    END IF;
    IF octet_length(piece) <= 7700 THEN -- if it does not fit at all, the others notice within a second
      body := body || CASE WHEN body = '' THEN '' ELSE ',' END || piece;
    END IF;
  END LOOP;
  INSERT INTO record (sid, seq, type, agent, time, trace, data)
    SELECT sids[r.append], bases[r.append] + r.place, r.type, r.agent, r.time, r.trace, r.data
    FROM unnest(r_append, r_type, r_agent, r_time, r_trace, r_data) WITH ORDINALITY AS r (append, type, agent, time, trace, data, place)
    WHERE sids[r.append] > 0;
  IF body <> '' OR due_ > 0 THEN
    PERFORM pg_notify(g_channel, '{"from":"' || g_sender || '","due":' || due_ || ',"sessions":[' || body || ']}');
  END IF;
END
$append$;

UPDATE meta SET applied = 2;

-- What a process asks of the store, each in one round trip. A refusal is an SQLSTATE of class
-- TG, returned where others share the transaction, raised where none does:
--
--	TG001  the log is append-only
--	TG101  the lease is not the trace's newest, or is of another process
--	TG102  the process did not renew its session in time, or another ended it
--	TG103  the ledger record is not the one that the caller checked
--	TG104  the head is not the one that the caller checked
--	TG105  another holds the lease
--	TG106  a commit would not be as durable as the process asks

CREATE FUNCTION tgad.open_session(p_shard int4, p_name text, p_lease interval, OUT o_session int8, OUT o_alone bool)
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tgad.order_state (shard) VALUES (p_shard) ON CONFLICT DO NOTHING;
	PERFORM 1 FROM tgad.order_state WHERE shard = p_shard FOR UPDATE; -- one after the other
	DELETE FROM tgad.sessions WHERE shard = p_shard AND ended AND expires < clock_timestamp() - interval '7 days'
		AND session < (SELECT max(session) FROM tgad.sessions WHERE shard = p_shard);
	SELECT coalesce(max(session), 0) + 1, NOT coalesce(bool_or(NOT ended), false)
		INTO o_session, o_alone FROM tgad.sessions WHERE shard = p_shard;
	INSERT INTO tgad.sessions (shard, session, name, lease, steady, expires)
		VALUES (p_shard, o_session, p_name, p_lease, clock_timestamp(), clock_timestamp() + p_lease);
END $$;

-- renew says how the session stands: false where another has ended it. One that is late was
-- ended by nobody and goes on, but begins to be steady anew.
CREATE FUNCTION tgad.renew(p_shard int4, p_session int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true); -- a renewal that is lost ends a lease sooner
	UPDATE tgad.sessions SET expires = clock_timestamp() + lease,
			steady = CASE WHEN expires < clock_timestamp() THEN clock_timestamp() ELSE steady END
		WHERE shard = p_shard AND session = p_session AND NOT ended;
	RETURN FOUND;
END $$;

CREATE FUNCTION tgad.in_time(p_shard int4, p_session int8) RETURNS bool LANGUAGE sql STABLE AS $$
	SELECT EXISTS (SELECT 1 FROM tgad.sessions
		WHERE shard = p_shard AND session = p_session AND NOT ended AND expires > clock_timestamp())
$$;

-- gone says that a session is over, and ends one that is late: from then on it appends nothing
-- and cannot be renewed. Only who was never late itself for as long may end another: after the
-- database was away, everybody has time to come back.
CREATE FUNCTION tgad.gone(p_shard int4, p_by int8, p_session int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	UPDATE tgad.sessions late SET ended = true FROM tgad.sessions own
		WHERE late.shard = p_shard AND late.session = p_session AND NOT late.ended AND late.expires < clock_timestamp()
		AND own.shard = p_shard AND own.session = p_by AND NOT own.ended AND own.expires > clock_timestamp()
		AND own.steady < clock_timestamp() - late.lease;
	RETURN NOT EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = p_shard AND session = p_session AND NOT ended);
END $$;

-- acquire grants the lease of a trace. p_how says from whom it may be taken: -1 from nobody, 0 from
-- one whose lease keeps nobody out, 1 from one outside of the processes, 2 from anybody. Whether
-- it may be taken from the asking process itself is for that to know. The grant need not be
-- synced: what is appended under it is, and comes later in the log of the database.
CREATE FUNCTION tgad.acquire(p_shard int4, p_session int8, p_trace uuid, p_epoch int8, p_token int8, p_how int2,
	OUT o_code text, OUT o_epoch int8, OUT o_version int8, OUT o_seq int8) LANGUAGE plpgsql AS $$
DECLARE
	h tgad.heads;
BEGIN
	IF NOT tgad.in_time(p_shard, p_session) THEN
		o_code := 'TG102';
		RETURN;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	o_code := '00000';
	INSERT INTO tgad.heads (shard, trace, epoch, session, token) VALUES (p_shard, p_trace, p_epoch, p_session, p_token)
		ON CONFLICT DO NOTHING;
	IF FOUND THEN
		o_epoch := p_epoch;
		o_version := 0;
		o_seq := 0;
		RETURN;
	END IF;
	SELECT * INTO h FROM tgad.heads WHERE shard = p_shard AND trace = p_trace FOR UPDATE;
	o_version := h.version;
	o_seq := h.seq;
	IF h.session = p_session AND h.token = p_token THEN -- the answer to the same question was lost
		o_epoch := h.epoch;
		RETURN;
	END IF;
	IF h.session NOT IN (0, p_session) AND NOT (p_how >= 0 AND h.lent = 2) AND NOT (p_how = 1 AND h.lent = 1) AND p_how < 2
		AND NOT tgad.gone(p_shard, p_session, h.session) THEN
		o_code := 'TG105';
		RETURN;
	END IF;
	o_epoch := greatest(h.epoch + 1, p_epoch);
	UPDATE tgad.heads SET epoch = o_epoch, session = p_session, token = p_token, lent = 0
		WHERE shard = p_shard AND trace = p_trace;
END $$;

CREATE FUNCTION tgad.lend(p_shard int4, p_session int8, p_trace uuid, p_epoch int8, p_lent int2) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	UPDATE tgad.heads SET lent = p_lent WHERE shard = p_shard AND trace = p_trace AND session = p_session AND epoch = p_epoch;
	RETURN FOUND;
END $$;

CREATE FUNCTION tgad.release(p_shard int4, p_session int8, p_traces uuid[], p_epochs int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	FOR i IN 1 .. cardinality(p_traces) LOOP
		UPDATE tgad.heads SET session = 0, lent = 0
			WHERE shard = p_shard AND trace = p_traces[i] AND session = p_session AND epoch = p_epochs[i];
	END LOOP;
END $$;

-- vouch returns for how many milliseconds a lease holds from now on, if nothing renews it; less
-- than one where it is not the trace's newest.
CREATE FUNCTION tgad.vouch(p_shard int4, p_session int8, p_trace uuid, p_epoch int8) RETURNS int8 LANGUAGE sql STABLE AS $$
	SELECT coalesce(max((extract(epoch FROM s.expires - clock_timestamp()) * 1000)::int8), 0)
	FROM tgad.heads h JOIN tgad.sessions s ON s.shard = h.shard AND s.session = h.session
	WHERE h.shard = p_shard AND h.trace = p_trace AND h.session = p_session AND h.epoch = p_epoch AND NOT s.ended
$$;

-- append adds to one trace what its caller has checked against the head and the ledger record
-- that it names. All its checks are made before it writes: one that refuses leaves no mark on
-- the transaction.
CREATE FUNCTION tgad.append(
	p_shard int4, p_session int8, p_raise bool, p_require_sync bool,
	p_trace uuid, p_epoch int8, p_version int8, p_seq int8, p_digest bytea, p_note int8, p_note_digest bytea,
	p_headers bytea[], p_parts bytea[], p_spills bytea[], p_frames bytea[],
	p_new_digest bytea, p_new_note_digest bytea, p_state int2, p_namespace text, p_since int8, p_deadline int8,
	p_hash bytea, p_before bytea, p_after bytea,
	p_kinds int2[], p_keys bytea[], p_values bytea[],
	p_committed int8, p_newest int8
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	h      record;
	stored bytea;
	why    text;
	n      int4 := cardinality(p_headers);
	m      int4 := cardinality(p_frames);
BEGIN
	SELECT d.version, d.seq, d.digest, d.note, d.note_digest, d.epoch, d.session, s.ended OR s.expires < clock_timestamp() AS late
		INTO h FROM tgad.heads d JOIN tgad.sessions s ON s.shard = p_shard AND s.session = p_session
		WHERE d.shard = p_shard AND d.trace = p_trace FOR UPDATE OF d;
	IF NOT FOUND OR h.epoch <> p_epoch OR h.session <> p_session THEN
		why := 'TG101';
	ELSIF h.late THEN
		why := 'TG102';
	ELSIF h.version <> p_version OR h.seq <> p_seq OR h.digest <> p_digest OR h.note <> p_note OR h.note_digest <> p_note_digest THEN
		why := 'TG104';
	ELSIF current_setting('synchronous_commit') IN ('off', 'local')
		OR p_require_sync AND (current_setting('synchronous_standby_names') = '' OR current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')) THEN
		why := 'TG106';
	ELSIF p_hash IS NOT NULL THEN
		SELECT record INTO stored FROM tgad.ledger WHERE shard = p_shard AND hash = p_hash FOR UPDATE;
		IF stored IS DISTINCT FROM p_before THEN
			why := 'TG103';
		ELSIF p_after IS NOT NULL AND p_before IS NULL THEN
			-- Another may be inserting the same key: this waits for it, and then finds its row.
			INSERT INTO tgad.ledger (shard, hash, record) VALUES (p_shard, p_hash, p_after) ON CONFLICT DO NOTHING;
			IF NOT FOUND THEN
				why := 'TG103';
			END IF;
		ELSIF p_after IS NOT NULL THEN
			UPDATE tgad.ledger SET record = p_after WHERE shard = p_shard AND hash = p_hash;
		END IF;
	END IF;
	IF why IS NOT NULL THEN
		IF p_raise THEN
			RAISE EXCEPTION 'append to trace %', p_trace USING ERRCODE = why;
		END IF;
		RETURN why;
	END IF;

	IF n > 0 THEN
		INSERT INTO tgad.entries (shard, trace, seq, header, parts, spill)
			SELECT p_shard, p_trace, p_seq + i, header, parts, spill
			FROM unnest(p_headers, p_parts, p_spills) WITH ORDINALITY AS t (header, parts, spill, i);
	END IF;
	IF m > 0 THEN
		INSERT INTO tgad.notes (shard, trace, number, frame)
			SELECT p_shard, p_trace, p_note + i, frame FROM unnest(p_frames) WITH ORDINALITY AS t (frame, i);
	END IF;
	UPDATE tgad.heads SET version = version + 1, seq = p_seq + n, digest = p_new_digest, note = p_note + m,
			note_digest = p_new_note_digest, state = p_state, namespace = p_namespace, since = p_since, deadline = p_deadline
		WHERE shard = p_shard AND trace = p_trace;
	FOR i IN 1 .. cardinality(p_kinds) LOOP
		IF p_values[i] IS NULL THEN
			DELETE FROM tgad.attachments WHERE shard = p_shard AND kind = p_kinds[i] AND key = p_keys[i];
		ELSE
			INSERT INTO tgad.attachments (shard, kind, key, value) VALUES (p_shard, p_kinds[i], p_keys[i], p_values[i])
				ON CONFLICT (shard, kind, key) DO UPDATE SET value = excluded.value;
		END IF;
	END LOOP;
	INSERT INTO tgad.pending (shard, trace, first_seq, entries, first_note, notes, digest, note_digest, committed, newest)
		VALUES (p_shard, p_trace, CASE WHEN n > 0 THEN p_seq + 1 ELSE 0 END, n, CASE WHEN m > 0 THEN p_note + 1 ELSE 0 END, m,
			p_new_digest, p_new_note_digest, p_committed, p_newest);
	RETURN '00000';
END $$;

-- look says how a trace stands for one who does not know what became of an append under
-- p_version. It waits for that append if it is under way, and keeps it out if it is still to
-- come. Once look itself has committed, what it saw is as durable as itself.
CREATE FUNCTION tgad.look(p_shard int4, p_trace uuid, OUT o_version int8, OUT o_epoch int8, OUT o_session int8) LANGUAGE plpgsql AS $$
DECLARE
	h tgad.heads;
BEGIN
	SELECT * INTO h FROM tgad.heads WHERE shard = p_shard AND trace = p_trace FOR UPDATE;
	o_version := coalesce(h.version, -1);
	o_epoch := coalesce(h.epoch, 0);
	o_session := coalesce(h.session, 0);
	UPDATE tgad.heads SET version = version + 1 WHERE shard = p_shard AND trace = p_trace;
END $$;

-- sequence gives what has committed the next numbers of the order and returns the newest; null
-- where another is at it. An append of a trace is seen only with all before it of that trace,
-- for it waited for their commits; and its id is larger than theirs.
CREATE FUNCTION tgad.sequence(p_shard int4, p_most int4) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	o tgad.order_state;
BEGIN
	SELECT * INTO o FROM tgad.order_state WHERE shard = p_shard FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	WITH moved AS (
		DELETE FROM tgad.pending WHERE shard = p_shard
			AND id IN (SELECT id FROM tgad.pending WHERE shard = p_shard ORDER BY id LIMIT p_most) RETURNING *
	), placed AS (
		INSERT INTO tgad.leaves (shard, index, trace, first_seq, entries, first_note, notes, digest, note_digest, committed, newest)
		SELECT p_shard, o.last + row_number() OVER w, trace, first_seq, entries, first_note, notes, digest, note_digest,
			greatest(o.committed, max(committed) OVER w), greatest(o.newest, max(newest) OVER w)
		FROM moved WINDOW w AS (ORDER BY id ROWS UNBOUNDED PRECEDING)
		RETURNING index, committed, newest
	)
	SELECT max(index), max(committed), max(newest) INTO o.last, o.committed, o.newest FROM placed HAVING count(*) > 0;
	IF NOT FOUND THEN
		RETURN (SELECT last FROM tgad.order_state WHERE shard = p_shard);
	END IF;
	UPDATE tgad.order_state SET last = o.last, committed = o.committed, newest = o.newest WHERE shard = p_shard;
	PERFORM pg_notify('tgad', p_shard || ' ' || o.last);
	RETURN o.last;
END $$;

-- newest is no earlier than any commit time and any ts that is stored.
CREATE FUNCTION tgad.newest(p_shard int4) RETURNS int8 LANGUAGE sql STABLE AS $$
	SELECT greatest(
		(SELECT greatest(committed, newest) FROM tgad.order_state WHERE shard = p_shard),
		(SELECT max(greatest(committed, newest)) FROM tgad.pending WHERE shard = p_shard), 0)
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad TO tgad_writer;
REVOKE EXECUTE ON FUNCTION tgad.make_partition(date) FROM tgad_writer;

-- Shards. A fleet can have several databases, each a shard with a name. A store lies on one of them at a time, and moves
-- as a whole: its number is the column shard of the other tables. Every shard has the tables of all placements.
-- A database that is no shard of a fleet has no row here.
--
--	TG107  the store is not here, or takes no new trace while it leaves
--	TG108  the namespace belongs to another store of the fleet
--	TG109  the placement is not the one that the caller knows

-- The fleet that this database is a shard of. The column held is changed by nobody: the right to
-- change it is the right to lock the row.
CREATE TABLE tgad.fleet (
	one  bool  PRIMARY KEY DEFAULT true CHECK (one),
	id   uuid  NOT NULL,
	name text  NOT NULL,          -- of this shard
	rest int4  NOT NULL,          -- the store of each namespace that has none of its own
	held bool  NOT NULL DEFAULT false
);
CREATE TABLE tgad.shards (
	name  text PRIMARY KEY,
	url   text NOT NULL,          -- without a password
	epoch int8 NOT NULL           -- the higher one wins
);
-- A namespace gets a store before its first call, and keeps it for good.
CREATE TABLE tgad.namespaces (
	namespace text PRIMARY KEY,
	store     int4 NOT NULL
);
-- Where each store is. What a shard says of itself (here, leaving, gone, arriving) is decided there, by a move; what it
-- says of others (elsewhere) it was told.
CREATE TABLE tgad.placements (
	store  int4 PRIMARY KEY,
	epoch  int8 NOT NULL,         -- one more with each move
	owner  text NOT NULL,         -- name of the shard
	state  text NOT NULL CHECK (state IN ('here', 'leaving', 'gone', 'arriving', 'elsewhere')),
	target text,                  -- where it is to go
	until  timestamptz,           -- of one that is gone: by then every send from here is over
	pinned bool NOT NULL DEFAULT false,
	held   bool NOT NULL DEFAULT false -- as in fleet
);

-- A placement goes on only: no lower epoch, and a store that is not here gets here with a new one.
CREATE FUNCTION tgad.placement_goes_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.epoch < OLD.epoch OR NEW.store <> OLD.store
		OR NEW.state IN ('here', 'leaving') AND OLD.state NOT IN ('here', 'leaving') AND NEW.epoch = OLD.epoch THEN
		RAISE EXCEPTION 'store % is % under epoch %: % under epoch % is refused', OLD.store, OLD.state, OLD.epoch, NEW.state, NEW.epoch
			USING ERRCODE = 'TG109';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER goes_on BEFORE UPDATE ON tgad.placements FOR EACH ROW EXECUTE FUNCTION tgad.placement_goes_on();

-- refuse_elsewhere ends a transaction with what this shard knows of the store's place.
CREATE FUNCTION tgad.refuse_elsewhere(p_store int4) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p tgad.placements;
BEGIN
	SELECT * INTO p FROM tgad.placements WHERE store = p_store;
	RAISE EXCEPTION 'store % is not here', p_store USING ERRCODE = 'TG107', DETAIL = jsonb_build_object('store', p_store,
		'epoch', coalesce(p.epoch, 0), 'owner', coalesce(p.owner, ''), 'state', coalesce(p.state, ''))::text;
END $$;

-- open_session as before, of a store that is here.
CREATE OR REPLACE FUNCTION tgad.open_session(p_shard int4, p_name text, p_lease interval, OUT o_session int8, OUT o_alone bool)
LANGUAGE plpgsql AS $$
DECLARE
	place text;
BEGIN
	INSERT INTO tgad.order_state (shard) VALUES (p_shard) ON CONFLICT DO NOTHING;
	PERFORM 1 FROM tgad.order_state WHERE shard = p_shard FOR UPDATE; -- one after the other
	SELECT state INTO place FROM tgad.placements WHERE store = p_shard FOR SHARE; -- and before a fence, or after it
	IF place NOT IN ('here', 'leaving') OR place IS NULL AND EXISTS (SELECT 1 FROM tgad.fleet) THEN
		PERFORM tgad.refuse_elsewhere(p_shard);
	END IF;
	DELETE FROM tgad.sessions WHERE shard = p_shard AND ended AND expires < clock_timestamp() - interval '7 days'
		AND session < (SELECT max(session) FROM tgad.sessions WHERE shard = p_shard);
	SELECT coalesce(max(session), 0) + 1, NOT coalesce(bool_or(NOT ended), false)
		INTO o_session, o_alone FROM tgad.sessions WHERE shard = p_shard;
	INSERT INTO tgad.sessions (shard, session, name, lease, steady, expires)
		VALUES (p_shard, o_session, p_name, p_lease, clock_timestamp(), clock_timestamp() + p_lease);
END $$;

-- acquire as before. With the lock of the placement a lease is granted before a fence, which then sees
-- its head, or after it, and refused. An append needs no such lock: it has the head's.
CREATE OR REPLACE FUNCTION tgad.acquire(p_shard int4, p_session int8, p_trace uuid, p_epoch int8, p_token int8, p_how int2,
	OUT o_code text, OUT o_epoch int8, OUT o_version int8, OUT o_seq int8) LANGUAGE plpgsql AS $$
DECLARE
	h     tgad.heads;
	place text;
BEGIN
	SELECT state INTO place FROM tgad.placements WHERE store = p_shard FOR SHARE;
	IF NOT tgad.in_time(p_shard, p_session) THEN
		o_code := 'TG102';
		RETURN;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	o_code := '00000';
	IF place IS NULL OR place = 'here' THEN
		INSERT INTO tgad.heads (shard, trace, epoch, session, token) VALUES (p_shard, p_trace, p_epoch, p_session, p_token)
			ON CONFLICT DO NOTHING;
		IF FOUND THEN
			o_epoch := p_epoch;
			o_version := 0;
			o_seq := 0;
			RETURN;
		END IF;
	END IF;
	SELECT * INTO h FROM tgad.heads WHERE shard = p_shard AND trace = p_trace FOR UPDATE;
	IF NOT FOUND OR place NOT IN ('here', 'leaving') OR place = 'leaving' AND h.seq = 0 AND h.session <> p_session THEN
		o_code := 'TG107';
		RETURN;
	END IF;
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

-- serves says whether a trace of a namespace may begin in a store. The lock keeps a namespace from getting a
-- store of its own meanwhile.
CREATE FUNCTION tgad.serves(p_store int4, p_namespace text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	f_rest int4;
BEGIN
	SELECT rest INTO f_rest FROM tgad.fleet FOR SHARE;
	RETURN NOT FOUND OR coalesce((SELECT store FROM tgad.namespaces WHERE namespace = p_namespace), f_rest) = p_store;
END $$;

-- append as before, and of a new trace the namespace too.
CREATE OR REPLACE FUNCTION tgad.append(
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
	ELSIF p_seq = 0 AND n > 0 AND NOT tgad.serves(p_shard, p_namespace) THEN
		why := 'TG108';
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

-- end_here makes every lease of a store void: no session goes on, and no head has the epoch that its holder
-- knows. Appends under way are waited for. It returns when every send under one of them is over.
CREATE FUNCTION tgad.end_here(p_store int4) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	o_until timestamptz;
BEGIN
	-- A process believes in its lease for less time than the lease is long, from a renewal before now.
	WITH over AS (UPDATE tgad.sessions SET ended = true WHERE shard = p_store AND NOT ended RETURNING lease)
	SELECT clock_timestamp() + coalesce(max(lease), interval '0') INTO o_until FROM over;
	PERFORM 1 FROM tgad.heads WHERE shard = p_store AND session <> 0 ORDER BY trace FOR UPDATE; -- in the order of all others
	-- The session stays: who comes next sees a holder that is gone, and not one that let go.
	UPDATE tgad.heads SET epoch = epoch + 1 WHERE shard = p_store AND session <> 0;
	RETURN o_until;
END $$;

-- fence ends a store here, under the epoch and for the shard that the caller names. Done twice it is done once.
CREATE FUNCTION tgad.fence(p_store int4, p_epoch int8, p_to text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p       tgad.placements;
	o_until timestamptz;
BEGIN
	SELECT * INTO p FROM tgad.placements WHERE store = p_store FOR UPDATE; -- no session begins meanwhile, and no lease is granted
	IF p.state = 'gone' AND p.epoch = p_epoch + 1 AND p.owner = p_to THEN
		RETURN;
	END IF;
	IF NOT coalesce(p.state IN ('here', 'leaving') AND p.epoch = p_epoch AND p.target = p_to, false) THEN
		RAISE EXCEPTION 'store % is % under epoch %, for %', p_store, p.state, p.epoch, p.target USING ERRCODE = 'TG109';
	END IF;
	o_until := tgad.end_here(p_store);
	UPDATE tgad.placements SET state = 'gone', epoch = p_epoch + 1, owner = p_to, until = o_until WHERE store = p_store;
END $$;

-- prepare lets a copy of a store be written here, and says how it stands where nobody may.
CREATE FUNCTION tgad.prepare(p_store int4, p_epoch int8, p_owner text, p_pinned bool) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p tgad.placements;
BEGIN
	INSERT INTO tgad.placements (store, epoch, owner, state, pinned) VALUES (p_store, p_epoch, p_owner, 'arriving', p_pinned) ON CONFLICT DO NOTHING;
	SELECT * INTO p FROM tgad.placements WHERE store = p_store FOR UPDATE;
	IF p.state IN ('here', 'leaving') OR p.epoch > p_epoch THEN
		RAISE EXCEPTION 'store % is % under epoch %', p_store, p.state, p.epoch USING ERRCODE = 'TG109';
	END IF;
	UPDATE tgad.placements SET epoch = p_epoch, owner = p_owner, state = 'arriving', target = NULL, until = NULL, pinned = p_pinned WHERE store = p_store;
END $$;

-- arriving locks a placement for who writes a copy: it refuses one who comes late.
CREATE FUNCTION tgad.arriving(p_store int4, p_epoch int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM tgad.placements WHERE store = p_store AND state = 'arriving' AND epoch = p_epoch FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'no copy of store % arrives here under epoch %', p_store, p_epoch USING ERRCODE = 'TG109';
	END IF;
END $$;

-- take makes this shard the owner of a store whose copy is whole, and that is fenced where it was.
CREATE FUNCTION tgad.take(p_store int4, p_epoch int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	f_self text := (SELECT name FROM tgad.fleet);
BEGIN
	PERFORM 1 FROM tgad.placements WHERE store = p_store AND owner = f_self AND epoch = p_epoch + 1 AND state IN ('here', 'leaving');
	IF NOT FOUND THEN
		PERFORM tgad.arriving(p_store, p_epoch);
		UPDATE tgad.placements SET epoch = p_epoch + 1, owner = f_self, state = 'here' WHERE store = p_store;
	END IF;
END $$;

-- learn takes what another shard says of the place of a store, if its epoch is higher. It never makes this shard the owner. A
-- shard that took itself for the owner, as one that was restored to an earlier time, is one no more.
CREATE FUNCTION tgad.learn(p_store int4, p_epoch int8, p_owner text, p_pinned bool) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	p tgad.placements;
BEGIN
	IF p_owner = (SELECT name FROM tgad.fleet) THEN
		RETURN false;
	END IF;
	INSERT INTO tgad.placements (store, epoch, owner, state, pinned) VALUES (p_store, p_epoch, p_owner, 'elsewhere', p_pinned) ON CONFLICT DO NOTHING;
	IF FOUND THEN
		RETURN true;
	END IF;
	SELECT * INTO p FROM tgad.placements WHERE store = p_store FOR UPDATE;
	IF p.epoch >= p_epoch THEN
		RETURN false;
	END IF;
	IF p.state IN ('here', 'leaving') THEN
		PERFORM tgad.end_here(p_store);
	END IF;
	UPDATE tgad.placements SET epoch = p_epoch, owner = p_owner, state = 'elsewhere', target = NULL, until = NULL, pinned = p_pinned WHERE store = p_store;
	RETURN true;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tgad.serves(int4, text), tgad.refuse_elsewhere(int4) TO tgad_writer;
GRANT SELECT ON tgad.fleet, tgad.shards, tgad.namespaces, tgad.placements TO tgad_writer, tgad_reader, tgad_auditor;
GRANT UPDATE (held) ON tgad.fleet, tgad.placements TO tgad_writer;

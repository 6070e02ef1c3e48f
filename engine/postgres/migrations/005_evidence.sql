-- Evidence. The Merkle tree of a store is a function of tgad.leaves. What is kept of it are its full tiles, and the
-- notes that were signed of it: checkpoints, hand-overs of the key, losses that a person accepted. Each is written once,
-- by functions that compare it with what is there. None of it is in the transaction of an append.
--
--	TG110  the caller is not the one that signs
--	TG111  another note is the newest, or the note does not go on from it
--	TG112  the order has not what the note covers, or a tile is there with other hashes

CREATE TABLE tgad.tiles (
	shard  int4  NOT NULL,
	level  int2  NOT NULL,
	number int8  NOT NULL,
	hashes bytea NOT NULL CHECK (octet_length(hashes) = 8192), -- 256 of them; a tile that still grows has no row
	PRIMARY KEY (shard, level, number)
);
ALTER TABLE tgad.tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;
CREATE TABLE tgad.signed_notes (
	shard  int4  NOT NULL,
	number int8  NOT NULL, -- 1, 2, 3, …
	kind   int2  NOT NULL CHECK (kind IN (1, 2, 3)), -- checkpoint, hand-over, accepted loss
	size   int8  NOT NULL, -- leaves of the tree that it was signed of
	epoch  int8  NOT NULL, -- of the process that signed it
	note   bytea NOT NULL,
	PRIMARY KEY (shard, number)
);
CREATE INDEX signed_notes_others ON tgad.signed_notes (shard, number) WHERE kind <> 1;

-- The one that signs. Its epoch is one more with each process that takes over.
CREATE TABLE tgad.signers (
	shard   int4 PRIMARY KEY,
	epoch   int8 NOT NULL,
	session int8 NOT NULL -- 0 is nobody
) WITH (fillfactor = 50);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tgad.tiles FOR EACH ROW EXECUTE FUNCTION tgad.refuse();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tgad.signed_notes FOR EACH ROW EXECUTE FUNCTION tgad.refuse();

-- must_be_here refuses what is of a store on another shard. The lock keeps a fence from coming in between.
CREATE FUNCTION tgad.must_be_here(p_store int4) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	place text;
BEGIN
	SELECT state INTO place FROM tgad.placements WHERE store = p_store FOR SHARE;
	IF place NOT IN ('here', 'leaving') THEN
		PERFORM tgad.refuse_elsewhere(p_store);
	END IF;
END $$;

-- lead makes a process the one that signs, and returns its epoch; 0 where another one is, or may still be. As with
-- the lease of a trace, the session of one that is late is ended first. The grant need not be synced: what is signed under
-- it is, and comes later in the log of the database.
CREATE FUNCTION tgad.lead(p_shard int4, p_session int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	s tgad.signers;
BEGIN
	PERFORM 1 FROM tgad.signers x JOIN tgad.sessions o ON o.shard = x.shard AND o.session = x.session
		WHERE x.shard = p_shard AND x.session <> p_session AND NOT o.ended AND o.expires > clock_timestamp();
	IF FOUND THEN
		RETURN 0;
	END IF;
	PERFORM tgad.must_be_here(p_shard);
	IF NOT tgad.in_time(p_shard, p_session) THEN
		RETURN 0;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	INSERT INTO tgad.signers VALUES (p_shard, 0, 0) ON CONFLICT DO NOTHING;
	SELECT * INTO s FROM tgad.signers WHERE shard = p_shard FOR UPDATE SKIP LOCKED;
	IF NOT FOUND OR s.session NOT IN (0, p_session) AND NOT tgad.gone(p_shard, p_session, s.session) THEN
		RETURN 0;
	END IF;
	IF s.session <> p_session THEN
		UPDATE tgad.signers SET epoch = s.epoch + 1, session = p_session WHERE shard = p_shard RETURNING * INTO s;
	END IF;
	RETURN s.epoch;
END $$;

-- resign lets another process sign.
CREATE FUNCTION tgad.resign(p_shard int4, p_session int8, p_epoch int8) RETURNS void LANGUAGE sql AS $$
	UPDATE tgad.signers SET session = 0 WHERE shard = p_shard AND session = p_session AND epoch = p_epoch
$$;

-- keep adds a note behind the newest one, and tiles. p_trace, p_digest and p_note_digest are of the last of the p_size
-- leaves: what is signed covers nothing that the order does not have. Two checkpoints of one size say the same, and differ in
-- their signatures. A loss (kind 3) is accepted by a person, at any process, and needs no epoch.
CREATE FUNCTION tgad.keep(p_shard int4, p_session int8, p_epoch int8, p_after int8, p_kind int2, p_size int8, p_note bytea, p_key bytea,
	p_trace uuid, p_digest bytea, p_note_digest bytea, p_levels int2[], p_numbers int8[], p_hashes bytea[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s tgad.signers;
	n tgad.signed_notes;
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	INSERT INTO tgad.signers VALUES (p_shard, 0, 0) ON CONFLICT DO NOTHING;
	SELECT * INTO s FROM tgad.signers WHERE shard = p_shard FOR UPDATE; -- one after the other
	IF p_kind <> 3 AND (s.epoch <> p_epoch OR s.session <> p_session OR NOT tgad.in_time(p_shard, p_session)) THEN
		RETURN 'TG110';
	END IF;
	IF current_setting('synchronous_commit') IN ('off', 'local') THEN
		RETURN 'TG106';
	END IF;
	IF p_size > 0 AND NOT EXISTS (SELECT 1 FROM tgad.leaves WHERE shard = p_shard AND index = p_size AND trace = p_trace AND digest = p_digest AND note_digest = p_note_digest)
		OR EXISTS (SELECT 1 FROM unnest(p_levels, p_numbers, p_hashes) AS t (level, number, hashes)
			JOIN tgad.tiles k ON k.shard = p_shard AND k.level = t.level AND k.number = t.number WHERE k.hashes <> t.hashes) THEN
		RETURN 'TG112';
	END IF;
	IF p_note IS NOT NULL THEN
		SELECT * INTO n FROM tgad.signed_notes WHERE shard = p_shard ORDER BY number DESC LIMIT 1;
		IF coalesce(n.number, 0) <> p_after OR p_kind <> 3 AND p_size < n.size
			OR p_kind = 1 AND n.kind = 1 AND p_size = n.size AND split_part(convert_from(p_note, 'UTF8'), E'\n\n', 1) <> split_part(convert_from(n.note, 'UTF8'), E'\n\n', 1) THEN
			RETURN 'TG111';
		END IF;
		INSERT INTO tgad.signed_notes VALUES (p_shard, p_after + 1, p_kind, p_size, p_epoch, p_note);
		IF p_key IS NOT NULL THEN
			INSERT INTO tgad.meta VALUES (p_shard, 'evidence key', p_key) ON CONFLICT DO NOTHING;
		END IF;
	END IF;
	INSERT INTO tgad.tiles (shard, level, number, hashes)
		SELECT p_shard, level, number, hashes FROM unnest(p_levels, p_numbers, p_hashes) AS t (level, number, hashes) ON CONFLICT DO NOTHING;
	RETURN '00000';
END $$;

-- doubt freezes a store for all its processes: no session goes on and no lease, and who begins another session finds the
-- reason. False where it was doubted already: the first reason stays.
CREATE FUNCTION tgad.doubt(p_shard int4, p_reason bytea) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM tgad.order_state WHERE shard = p_shard FOR UPDATE; -- no session begins meanwhile
	PERFORM tgad.must_be_here(p_shard);
	INSERT INTO tgad.meta AS m VALUES (p_shard, 'doubted', p_reason) ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value WHERE m.value = '';
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM tgad.end_here(p_shard);
	RETURN true;
END $$;

-- accept takes a doubted store into service again, in quarantine. False where it is not doubted.
CREATE FUNCTION tgad.accept(p_shard int4, p_quarantine bytea) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM tgad.order_state WHERE shard = p_shard FOR UPDATE;
	PERFORM tgad.must_be_here(p_shard);
	UPDATE tgad.meta SET value = '' WHERE shard = p_shard AND name = 'doubted' AND value <> '';
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	INSERT INTO tgad.meta VALUES (p_shard, 'quarantine', p_quarantine) ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value;
	RETURN true;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT SELECT, INSERT ON tgad.tiles, tgad.signed_notes TO tgad_writer;
GRANT SELECT, INSERT, UPDATE ON tgad.signers TO tgad_writer;
GRANT SELECT ON tgad.tiles, tgad.signed_notes, tgad.signers TO tgad_reader, tgad_auditor;
GRANT EXECUTE ON FUNCTION tgad.must_be_here(int4), tgad.lead(int4, int8), tgad.resign(int4, int8, int8), tgad.doubt(int4, bytea), tgad.accept(int4, bytea), tgad.end_here(int4),
	tgad.keep(int4, int8, int8, int8, int2, int8, bytea, bytea, uuid, bytea, bytea, int2[], int8[], bytea[]) TO tgad_writer;

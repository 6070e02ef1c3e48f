-- Sealing. A store can be sealed under a key ring, which lies outside of the database. The row "keyring" of tgad.meta says under
-- which one: its id, and whether the ledger has digests by its secret.
--
--	TG114  nothing new is sealed under the key any more: what it sealed is erased, or is to be
--	TG115  the key ring is another copy: it has another key of that number
--	TG116  another process has gone on with the erasure, or begun one

-- The keys that the store has used, each with a mark by which it is told from another key of that number. A row is there
-- before the key seals anything. state 1: nothing new is sealed under it.
CREATE TABLE tgad.data_keys (
	shard int4  NOT NULL,
	key   int8  NOT NULL,
	mark  bytea NOT NULL,
	state int2  NOT NULL DEFAULT 0,
	PRIMARY KEY (shard, key)
);
-- Under which keys the values of an owner are sealed: of a stream, or of all that is erased together. The greatest is for new ones.
CREATE TABLE tgad.owner_keys (
	shard int4  NOT NULL,
	owner bytea NOT NULL,
	key   int8  NOT NULL,
	PRIMARY KEY (shard, owner, key)
);
-- The erasure that is under way, from before the first row is changed until the last key is destroyed.
CREATE TABLE tgad.erasing (
	shard int4  PRIMARY KEY,
	plan  bytea NOT NULL
);

-- seal_store says under which ring a store is sealed, null for none. A store that has none yet gets that of the caller, where no
-- process has it open: one that has it without the ring would go on to write what everybody can read. Sessions that are late
-- end: who had one reads this row before the next. o_busy: a process has it. Half a copy gets no ring.
CREATE FUNCTION tgad.seal_store(p_shard int4, p_ring bytea, OUT o_under bytea, OUT o_busy bool) LANGUAGE plpgsql AS $$
DECLARE
	place text;
BEGIN
	o_busy := false;
	INSERT INTO tgad.order_state (shard) VALUES (p_shard) ON CONFLICT DO NOTHING;
	PERFORM 1 FROM tgad.order_state WHERE shard = p_shard FOR UPDATE; -- before a session begins, or after it
	SELECT state INTO place FROM tgad.placements WHERE store = p_shard FOR SHARE;
	IF place NOT IN ('here', 'leaving') OR place IS NULL AND EXISTS (SELECT 1 FROM tgad.fleet) THEN
		PERFORM tgad.refuse_elsewhere(p_shard);
	END IF;
	SELECT value INTO o_under FROM tgad.meta WHERE shard = p_shard AND name = 'keyring';
	IF o_under IS NOT NULL OR p_ring IS NULL OR EXISTS (SELECT 1 FROM tgad.meta WHERE shard = p_shard AND name = 'copying' AND value <> '') THEN
		RETURN;
	END IF;
	IF EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = p_shard AND NOT ended AND expires > clock_timestamp()) THEN
		o_busy := true;
		RETURN;
	END IF;
	UPDATE tgad.sessions SET ended = true WHERE shard = p_shard AND NOT ended;
	o_under := p_ring || CASE WHEN EXISTS (SELECT 1 FROM tgad.ledger WHERE shard = p_shard) THEN '\x00'::bytea ELSE '\x01'::bytea END;
	INSERT INTO tgad.meta VALUES (p_shard, 'keyring', o_under);
END $$;

-- know_keys remembers keys of the ring, and returns the greatest that the store has used.
CREATE FUNCTION tgad.know_keys(p_shard int4, p_keys int8[], p_marks bytea[]) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	INSERT INTO tgad.data_keys (shard, key, mark) SELECT p_shard, k.key, k.mark FROM unnest(p_keys, p_marks) AS k (key, mark) ORDER BY k.key ON CONFLICT DO NOTHING;
	IF EXISTS (SELECT 1 FROM unnest(p_keys, p_marks) AS k (key, mark) JOIN tgad.data_keys d ON d.shard = p_shard AND d.key = k.key WHERE d.mark <> k.mark) THEN
		RAISE EXCEPTION 'another key ring' USING ERRCODE = 'TG115';
	END IF;
	RETURN (SELECT max(key) FROM tgad.data_keys WHERE shard = p_shard);
END $$;

-- may_seal refuses an append that seals under a key which was retired since its process chose it. It is the first statement of
-- its transaction: an erasure that retires keys waits for those under way, and who comes later sees that they are retired.
CREATE FUNCTION tgad.may_seal(p_shard int4, p_keys int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(29800, p_shard);
	IF EXISTS (SELECT 1 FROM unnest(p_keys) AS k (key) WHERE NOT EXISTS (SELECT 1 FROM tgad.data_keys d WHERE d.shard = p_shard AND d.key = k.key AND d.state = 0)) THEN
		RAISE EXCEPTION 'a key is retired' USING ERRCODE = 'TG114';
	END IF;
END $$;

-- retire_keys has nothing new be sealed under keys, and returns when all that is under way is over.
CREATE FUNCTION tgad.retire_keys(p_shard int4, p_keys int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(29800, p_shard);
	UPDATE tgad.data_keys SET state = 1 WHERE shard = p_shard AND key = ANY (p_keys) AND state = 0;
END $$;

-- own_key returns the key of an owner: the one that it has, or the one that the caller brings. Of processes that ask at the same
-- moment all get one.
CREATE FUNCTION tgad.own_key(p_shard int4, p_owner bytea, p_key int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	o_key int8;
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	PERFORM pg_advisory_xact_lock(hashtextextended(p_shard || ' ' || encode(p_owner, 'hex'), 29800));
	SELECT max(o.key) INTO o_key FROM tgad.owner_keys o JOIN tgad.data_keys d ON d.shard = o.shard AND d.key = o.key AND d.state = 0
		WHERE o.shard = p_shard AND o.owner = p_owner;
	IF o_key IS NULL AND p_key <> 0 THEN
		INSERT INTO tgad.owner_keys (shard, owner, key) VALUES (p_shard, p_owner, p_key) ON CONFLICT DO NOTHING;
		o_key := p_key;
	END IF;
	RETURN coalesce(o_key, 0);
END $$;

-- begin_erasing remembers what is to be erased, and retires the keys that are to be destroyed.
CREATE FUNCTION tgad.begin_erasing(p_shard int4, p_plan bytea, p_keys int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	PERFORM tgad.retire_keys(p_shard, p_keys);
	INSERT INTO tgad.erasing VALUES (p_shard, p_plan) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'an erasure is under way' USING ERRCODE = 'TG116';
	END IF;
END $$;

-- go_on_erasing takes the place of what is to be erased with what is left of it; null where nothing is.
CREATE FUNCTION tgad.go_on_erasing(p_shard int4, p_plan bytea, p_next bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	IF p_next IS NULL THEN
		DELETE FROM tgad.erasing WHERE shard = p_shard AND plan = p_plan;
	ELSE
		UPDATE tgad.erasing SET plan = p_next WHERE shard = p_shard AND plan = p_plan;
	END IF;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the erasure has gone on' USING ERRCODE = 'TG116';
	END IF;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE ON tgad.data_keys TO tgad_writer;
GRANT SELECT, INSERT, DELETE ON tgad.owner_keys TO tgad_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON tgad.erasing TO tgad_writer;
GRANT SELECT ON tgad.data_keys, tgad.owner_keys TO tgad_reader, tgad_auditor;
GRANT EXECUTE ON FUNCTION tgad.seal_store(int4, bytea), tgad.know_keys(int4, int8[], bytea[]), tgad.may_seal(int4, int8[]), tgad.retire_keys(int4, int8[]), tgad.own_key(int4, bytea, int8),
	tgad.begin_erasing(int4, bytea, int8[]), tgad.go_on_erasing(int4, bytea, bytea) TO tgad_writer;

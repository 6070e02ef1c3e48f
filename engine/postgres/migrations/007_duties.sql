-- Duties. What one process of a store does at a time, with what it must remember of it: signing, each delivery of audit
-- records, each receiver of notices. The table of signers becomes the table of all of them.
--
--	TG110  the caller is not on duty
ALTER TABLE tgad.signers RENAME TO duties;
ALTER TABLE tgad.duties ADD COLUMN duty text NOT NULL DEFAULT 'evidence', ADD COLUMN kept bytea; -- kept: null before the first word
ALTER TABLE tgad.duties ALTER COLUMN duty DROP DEFAULT, DROP CONSTRAINT signers_pkey, ADD PRIMARY KEY (shard, duty);

-- lead puts a process on duty, and returns its epoch and what was kept; the epoch 0 where another process is on duty, or may
-- still be. As with the lease of a trace, the session of one that is late is ended first.
DROP FUNCTION tgad.lead(int4, int8);
CREATE FUNCTION tgad.lead(p_shard int4, p_duty text, p_session int8, OUT o_epoch int8, OUT o_kept bytea) LANGUAGE plpgsql AS $$
DECLARE
	d tgad.duties;
BEGIN
	o_epoch := 0;
	SELECT x.kept INTO o_kept FROM tgad.duties x JOIN tgad.sessions o ON o.shard = x.shard AND o.session = x.session
		WHERE x.shard = p_shard AND x.duty = p_duty AND x.session <> p_session AND NOT o.ended AND o.expires > clock_timestamp();
	IF FOUND THEN
		RETURN;
	END IF;
	PERFORM tgad.must_be_here(p_shard);
	IF NOT tgad.in_time(p_shard, p_session) THEN
		RETURN;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	INSERT INTO tgad.duties (shard, duty, epoch, session) VALUES (p_shard, p_duty, 0, 0) ON CONFLICT DO NOTHING;
	SELECT * INTO d FROM tgad.duties WHERE shard = p_shard AND duty = p_duty FOR UPDATE SKIP LOCKED;
	o_kept := d.kept;
	IF NOT FOUND OR d.session NOT IN (0, p_session) AND NOT tgad.gone(p_shard, p_session, d.session) THEN
		RETURN;
	END IF;
	IF d.session <> p_session THEN
		UPDATE tgad.duties SET epoch = d.epoch + 1, session = p_session WHERE shard = p_shard AND duty = p_duty RETURNING * INTO d;
	END IF;
	o_epoch := d.epoch;
END $$;

-- resign lets another process go on duty.
DROP FUNCTION tgad.resign(int4, int8, int8);
CREATE FUNCTION tgad.resign(p_shard int4, p_duty text, p_session int8, p_epoch int8) RETURNS void LANGUAGE sql AS $$
	UPDATE tgad.duties SET session = 0 WHERE shard = p_shard AND duty = p_duty AND session = p_session AND epoch = p_epoch
$$;

-- on_duty says whether a process is on duty, and keeps others from it until the transaction ends.
CREATE FUNCTION tgad.on_duty(p_shard int4, p_duty text, p_session int8, p_epoch int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM tgad.duties WHERE shard = p_shard AND duty = p_duty AND session = p_session AND epoch = p_epoch FOR UPDATE;
	RETURN FOUND AND tgad.in_time(p_shard, p_session);
END $$;

-- remember keeps what the process on duty is to know after a restart, and who follows it. What was done and is lost here is
-- done again, so it need not be synced.
CREATE FUNCTION tgad.remember(p_shard int4, p_duty text, p_session int8, p_epoch int8, p_kept bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	IF NOT tgad.on_duty(p_shard, p_duty, p_session, p_epoch) THEN
		RETURN 'TG110';
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	UPDATE tgad.duties SET kept = p_kept WHERE shard = p_shard AND duty = p_duty;
	RETURN '00000';
END $$;

-- keep as before.
CREATE OR REPLACE FUNCTION tgad.keep(p_shard int4, p_session int8, p_epoch int8, p_after int8, p_kind int2, p_size int8, p_note bytea, p_key bytea,
	p_trace uuid, p_digest bytea, p_note_digest bytea, p_levels int2[], p_numbers int8[], p_hashes bytea[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n tgad.signed_notes;
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	INSERT INTO tgad.duties (shard, duty, epoch, session) VALUES (p_shard, 'evidence', 0, 0) ON CONFLICT DO NOTHING;
	PERFORM 1 FROM tgad.duties WHERE shard = p_shard AND duty = 'evidence' FOR UPDATE; -- one after the other
	IF p_kind <> 3 AND NOT tgad.on_duty(p_shard, 'evidence', p_session, p_epoch) THEN
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tgad.lead(int4, text, int8), tgad.resign(int4, text, int8, int8), tgad.on_duty(int4, text, int8, int8),
	tgad.remember(int4, text, int8, int8, bytea) TO tgad_writer;

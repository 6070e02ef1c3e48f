-- Lists. An index of the traces of a store by what a list is asked for: a function of the log, made behind it by the process on
-- the duty 'lists'. None of it is in the transaction of an append. A store whose processes do not ask for it has no row here.
--
--	TG110  the caller is not on duty
--	TG113  somebody else has written, or the database has lost a write: the caller reads how far the lists are, and goes on from there

CREATE TABLE tgad.lists (
	shard     int4  NOT NULL,
	id        uuid  NOT NULL, -- of the trace
	since     int8  NOT NULL,
	namespace bytea NOT NULL, -- bytes: not every text of JSON is one of PostgreSQL
	server    bytea NOT NULL,
	tool      bytea NOT NULL,
	key       bytea NOT NULL,
	state     int2  NOT NULL,
	class     int2  NOT NULL,
	PRIMARY KEY (shard, id)
);
CREATE INDEX lists_since ON tgad.lists (shard, since, id);
CREATE INDEX lists_namespace ON tgad.lists (shard, namespace, since, id);
CREATE INDEX lists_server ON tgad.lists (shard, server, since, id);
CREATE INDEX lists_tool ON tgad.lists (shard, tool, since, id);
CREATE INDEX lists_key ON tgad.lists (shard, key, since, id) WHERE key <> '';
CREATE INDEX lists_state ON tgad.lists (shard, state, since, id);
CREATE INDEX lists_class ON tgad.lists (shard, class, since, id);

CREATE TABLE tgad.lists_standing (
	shard    int4 PRIMARY KEY,
	format   int8 NOT NULL, -- of the program that makes the rows
	version  int8 NOT NULL DEFAULT 0, -- one more with each transaction
	position int8,  -- every trace is there up to this append; null while the lists are made
	leaf     bytea  -- which append that is
) WITH (fillfactor = 50);

-- Traces of which something was erased, from one id to another. Who erases writes it, in the same transaction.
CREATE TABLE tgad.lists_again (
	shard  int4 NOT NULL,
	number int8 NOT NULL GENERATED ALWAYS AS IDENTITY,
	first  uuid NOT NULL,
	last   uuid NOT NULL,
	PRIMARY KEY (shard, number)
);

CREATE INDEX lists_again_first ON tgad.lists_again (shard, first);
CREATE INDEX lists_again_spans ON tgad.lists_again (shard, first) WHERE first <> last;

-- look_again notes that something was erased. The lock keeps lists from being begun beside it, by who reads the traces as they were:
-- either the erasure is over before they are begun, or it sees that they are. What reads an old state of the database
-- cannot see that, and notes it in any case.
CREATE FUNCTION tgad.look_again(p_shard int4, p_first uuid, p_last uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(29799, p_shard);
	IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT 1 FROM tgad.lists_standing WHERE shard = p_shard) THEN
		INSERT INTO tgad.lists_again (shard, first, last) VALUES (p_shard, p_first, p_last);
	END IF;
END $$;
CREATE FUNCTION tgad.erased() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	PERFORM tgad.look_again(NEW.shard, NEW.trace, NEW.trace);
	RETURN NULL;
END $$;
CREATE TRIGGER erased AFTER UPDATE ON tgad.entries FOR EACH ROW WHEN (OLD.parts IS NOT NULL AND NEW.parts IS NULL) EXECUTE FUNCTION tgad.erased();

-- may_list says whether a process may write the lists. What is written and lost is made again, so it need not be synced.
CREATE FUNCTION tgad.may_list(p_shard int4, p_session int8, p_epoch int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tgad.must_be_here(p_shard);
	PERFORM set_config('synchronous_commit', 'off', true);
	RETURN tgad.on_duty(p_shard, 'lists', p_session, p_epoch);
END $$;

-- open_lists says how far the lists are, and begins them where there are none. o_same: the append at that place is the one that it was.
CREATE FUNCTION tgad.open_lists(p_shard int4, p_session int8, p_epoch int8, p_format int8,
	OUT o_code text, OUT o_format int8, OUT o_version int8, OUT o_position int8, OUT o_same bool) LANGUAGE plpgsql AS $$
DECLARE
	s tgad.lists_standing;
BEGIN
	IF NOT tgad.may_list(p_shard, p_session, p_epoch) THEN
		o_code := 'TG110';
		RETURN;
	END IF;
	o_code := '00000';
	SELECT * INTO s FROM tgad.lists_standing WHERE shard = p_shard;
	IF NOT FOUND THEN
		PERFORM pg_advisory_xact_lock(29799, p_shard);
		DELETE FROM tgad.lists_again WHERE shard = p_shard;
		INSERT INTO tgad.lists_standing (shard, format) VALUES (p_shard, p_format) RETURNING * INTO s;
	END IF;
	o_format := s.format;
	o_version := s.version;
	o_position := s.position;
	o_same := s.position = 0 OR EXISTS (SELECT 1 FROM tgad.leaves WHERE shard = p_shard AND index = s.position AND uuid_send(trace) || digest || note_digest = s.leaf);
END $$;

-- list_more takes the next version of the lists for a transaction.
CREATE FUNCTION tgad.list_more(p_shard int4, p_session int8, p_epoch int8, p_version int8) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF NOT tgad.may_list(p_shard, p_session, p_epoch) THEN
		RETURN 'TG110';
	END IF;
	UPDATE tgad.lists_standing SET version = version + 1 WHERE shard = p_shard AND version = p_version;
	IF NOT FOUND THEN
		RETURN 'TG113';
	END IF;
	RETURN '00000';
END $$;

-- put_lists writes rows, and where p_position is not null up to which append they are.
CREATE FUNCTION tgad.put_lists(p_shard int4, p_session int8, p_epoch int8, p_version int8, p_ids uuid[], p_since int8[],
	p_namespaces bytea[], p_servers bytea[], p_tools bytea[], p_keys bytea[], p_states int2[], p_classes int2[], p_position int8, p_leaf bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	code text := tgad.list_more(p_shard, p_session, p_epoch, p_version);
BEGIN
	IF code <> '00000' THEN
		RETURN code;
	END IF;
	INSERT INTO tgad.lists AS l (shard, id, since, namespace, server, tool, key, state, class)
		SELECT p_shard, t.* FROM unnest(p_ids, p_since, p_namespaces, p_servers, p_tools, p_keys, p_states, p_classes) AS t
		ON CONFLICT (shard, id) DO UPDATE SET since = excluded.since, namespace = excluded.namespace, server = excluded.server, tool = excluded.tool,
			key = excluded.key, state = excluded.state, class = excluded.class WHERE l.* IS DISTINCT FROM excluded.*;
	IF p_position IS NOT NULL THEN
		UPDATE tgad.lists_standing SET position = p_position, leaf = p_leaf WHERE shard = p_shard;
	END IF;
	RETURN code;
END $$;

-- listed_again takes notes of erasures away, once the rows are those of the log.
CREATE FUNCTION tgad.listed_again(p_shard int4, p_session int8, p_epoch int8, p_version int8, p_numbers int8[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	code text := tgad.list_more(p_shard, p_session, p_epoch, p_version);
BEGIN
	IF code = '00000' THEN
		DELETE FROM tgad.lists_again WHERE shard = p_shard AND number = ANY (p_numbers);
	END IF;
	RETURN code;
END $$;

-- count_lists has the server look what the lists are like: a page is to be read by index from the first one on.
CREATE FUNCTION tgad.count_lists() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	ANALYZE tgad.lists;
END $$;

-- clear_lists removes rows, and at the end the word that there are any. o_more: it is to be called again.
CREATE FUNCTION tgad.clear_lists(p_shard int4, p_session int8, p_epoch int8, p_most int4, OUT o_code text, OUT o_more bool) LANGUAGE plpgsql AS $$
DECLARE
	n int8;
BEGIN
	o_more := false;
	IF NOT tgad.may_list(p_shard, p_session, p_epoch) THEN
		o_code := 'TG110';
		RETURN;
	END IF;
	o_code := '00000';
	UPDATE tgad.lists_standing SET version = version + 1, position = NULL, leaf = NULL WHERE shard = p_shard; -- no list is made of what is left
	DELETE FROM tgad.lists WHERE shard = p_shard AND id IN (SELECT id FROM tgad.lists WHERE shard = p_shard ORDER BY id LIMIT p_most);
	GET DIAGNOSTICS n = ROW_COUNT;
	o_more := n = p_most;
	IF NOT o_more THEN
		DELETE FROM tgad.lists_standing WHERE shard = p_shard;
		DELETE FROM tgad.lists_again WHERE shard = p_shard;
	END IF;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tgad FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON tgad.lists, tgad.lists_standing TO tgad_writer;
GRANT SELECT, DELETE ON tgad.lists_again TO tgad_writer;
GRANT SELECT ON tgad.lists, tgad.lists_standing, tgad.lists_again TO tgad_reader;
GRANT EXECUTE ON FUNCTION tgad.may_list(int4, int8, int8), tgad.open_lists(int4, int8, int8, int8), tgad.list_more(int4, int8, int8, int8),
	tgad.put_lists(int4, int8, int8, int8, uuid[], int8[], bytea[], bytea[], bytea[], bytea[], int2[], int2[], int8, bytea),
	tgad.listed_again(int4, int8, int8, int8, int8[]), tgad.clear_lists(int4, int8, int8, int4), tgad.count_lists() TO tgad_writer;

-- The tables of a store. Each has the column shard in front of its primary key: stores that
-- share a database differ in it, and a database that spreads tables over machines spreads
-- them by it. All rows of a store have one value, so no append touches two machines.

DO $$
DECLARE
	r text;
BEGIN
	FOREACH r IN ARRAY ARRAY['tgad_writer', 'tgad_reader', 'tgad_auditor', 'tgad_eraser'] LOOP
		IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = r) THEN
			EXECUTE format('CREATE ROLE %I NOLOGIN', r);
		END IF;
	END LOOP;
END $$;

-- What belongs to the store as a whole: its id, its secret, its quarantine.
CREATE TABLE tgad.meta (
	shard int4  NOT NULL,
	name  text  NOT NULL,
	value bytea NOT NULL,
	PRIMARY KEY (shard, name)
);

-- The processes that have a store open. What one holds ends with its session. A session that
-- was ended by another never comes back; one that is only late may.
CREATE TABLE tgad.sessions (
	shard   int4        NOT NULL,
	session int8        NOT NULL, -- the incarnation in the epochs that it was granted
	name    text        NOT NULL, -- for people
	lease   interval    NOT NULL, -- for how long a renewal holds
	steady  timestamptz NOT NULL, -- since when it was never late
	expires timestamptz NOT NULL,
	ended   bool        NOT NULL DEFAULT false,
	PRIMARY KEY (shard, session)
) WITH (fillfactor = 50);

-- The head of each trace, and who may append to it. version counts appends, and looks at an
-- append whose outcome was not known: what was sent before a look cannot come after it.
CREATE TABLE tgad.heads (
	shard       int4  NOT NULL,
	trace       uuid  NOT NULL,
	version     int8  NOT NULL DEFAULT 0,
	seq         int8  NOT NULL DEFAULT 0,
	digest      bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
	note        int8  NOT NULL DEFAULT 0,
	note_digest bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
	state       int2  NOT NULL DEFAULT 0,
	epoch       int8  NOT NULL,
	session     int8  NOT NULL, -- that holds the lease; 0 is nobody
	token       int8  NOT NULL, -- by which the holder knows its own question again
	lent        int2  NOT NULL DEFAULT 0, -- 1: to somebody outside of the process; 2: and it keeps nobody else out
	namespace   text  NOT NULL DEFAULT '',
	since       int8  NOT NULL DEFAULT 0,
	deadline    int8  NOT NULL DEFAULT 0,
	PRIMARY KEY (shard, trace)
) WITH (fillfactor = 70);
CREATE INDEX heads_open ON tgad.heads (shard, trace) WHERE state BETWEEN 1 AND 3;

-- The log. The id of a trace begins with its time, so a range of ids is a range of time, and
-- what is old enough goes as a partition. The header of an entry is never changed; its artifact and
-- documents can only be erased.
CREATE TABLE tgad.entries (
	shard  int4  NOT NULL,
	trace  uuid  NOT NULL,
	seq    int8  NOT NULL,
	header bytea NOT NULL, -- of the entry frame, with the key
	parts  bytea,          -- artifact and documents in the frame; null when erased
	spill  bytea,          -- the parts that are too long for the frame
	PRIMARY KEY (shard, trace, seq)
) PARTITION BY RANGE (trace);
CREATE TABLE tgad.notes (
	shard  int4  NOT NULL,
	trace  uuid  NOT NULL,
	number int8  NOT NULL,
	frame  bytea NOT NULL,
	PRIMARY KEY (shard, trace, number)
) PARTITION BY RANGE (trace);
ALTER TABLE tgad.entries ALTER COLUMN spill SET STORAGE EXTERNAL;
CREATE TABLE tgad.entries_rest PARTITION OF tgad.entries DEFAULT;
CREATE TABLE tgad.notes_rest PARTITION OF tgad.notes DEFAULT;

CREATE TABLE tgad.checkpoints (
	shard int4  NOT NULL,
	trace uuid  NOT NULL,
	seq   int8  NOT NULL,
	body  bytea NOT NULL,
	PRIMARY KEY (shard, trace, seq)
);

-- The record of each idempotency key. It stays for ever.
CREATE TABLE tgad.ledger (
	shard  int4  NOT NULL,
	hash   bytea NOT NULL,
	record bytea NOT NULL,
	PRIMARY KEY (shard, hash)
) WITH (fillfactor = 80);

CREATE TABLE tgad.attachments (
	shard int4  NOT NULL,
	kind  int2  NOT NULL,
	key   bytea NOT NULL,
	value bytea NOT NULL,
	PRIMARY KEY (shard, kind, key)
);

-- The order. An append leaves a row in pending; one sequencer at a time, whoever has the row
-- of order_state, gives what has committed the next numbers. So the numbers have no gap, and
-- none is taken back, although transactions commit in another order than they began.
CREATE TABLE tgad.order_state (
	shard     int4 NOT NULL,
	last      int8 NOT NULL DEFAULT 0,
	committed int8 NOT NULL DEFAULT 0, -- newest commit time up to last
	newest    int8 NOT NULL DEFAULT 0, -- newest ts up to last
	PRIMARY KEY (shard)
) WITH (fillfactor = 50);
CREATE TABLE tgad.pending (
	shard       int4  NOT NULL,
	id          int8  NOT NULL GENERATED ALWAYS AS IDENTITY,
	trace       uuid  NOT NULL,
	first_seq   int8  NOT NULL,
	entries     int4  NOT NULL,
	first_note  int8  NOT NULL,
	notes       int4  NOT NULL,
	digest      bytea NOT NULL,
	note_digest bytea NOT NULL,
	committed   int8  NOT NULL,
	newest      int8  NOT NULL,
	PRIMARY KEY (shard, id)
);
CREATE TABLE tgad.leaves (
	shard       int4  NOT NULL,
	index       int8  NOT NULL,
	trace       uuid  NOT NULL,
	first_seq   int8  NOT NULL,
	entries     int4  NOT NULL,
	first_note  int8  NOT NULL,
	notes       int4  NOT NULL,
	digest      bytea NOT NULL,
	note_digest bytea NOT NULL,
	committed   int8  NOT NULL,
	newest      int8  NOT NULL,
	PRIMARY KEY (shard, index)
);

-- Append-only in depth: not even the owner changes what was written.
CREATE FUNCTION tgad.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'tgad.%: % is refused, the log is append-only', TG_TABLE_NAME, TG_OP USING ERRCODE = 'TG001';
END $$;
CREATE FUNCTION tgad.only_erase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND NEW.parts IS NULL AND NEW.spill IS NULL
		AND (NEW.shard, NEW.trace, NEW.seq, NEW.header) = (OLD.shard, OLD.trace, OLD.seq, OLD.header) THEN
		RETURN NEW;
	END IF;
	RAISE EXCEPTION 'tgad.%: % is refused, what an entry holds can only be erased', TG_TABLE_NAME, TG_OP USING ERRCODE = 'TG001';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tgad.notes FOR EACH ROW EXECUTE FUNCTION tgad.refuse();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tgad.entries FOR EACH ROW EXECUTE FUNCTION tgad.only_erase();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tgad.leaves FOR EACH ROW EXECUTE FUNCTION tgad.refuse();
CREATE TRIGGER never_deleted BEFORE DELETE ON tgad.ledger FOR EACH ROW EXECUTE FUNCTION tgad.refuse();

-- A partition holds the traces that began in a month.
CREATE FUNCTION tgad.make_partition(p_month date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	first timestamptz := date_trunc('month', p_month)::timestamp AT TIME ZONE 'UTC';
	after timestamptz := (date_trunc('month', p_month) + interval '1 month')::timestamp AT TIME ZONE 'UTC';
	name  text;
BEGIN
	FOREACH name IN ARRAY ARRAY['entries', 'notes'] LOOP
		EXECUTE format('CREATE TABLE IF NOT EXISTS tgad.%I PARTITION OF tgad.%I FOR VALUES FROM (%L) TO (%L)',
			name || to_char(p_month, '_YYYY_MM'), name, tgad.first_trace(first), tgad.first_trace(after));
	END LOOP;
END $$;
CREATE FUNCTION tgad.first_trace(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
	SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::int8), 12, '0') || repeat('0', 20))::uuid
$$;

GRANT USAGE ON SCHEMA tgad TO tgad_writer, tgad_reader, tgad_auditor, tgad_eraser;
GRANT SELECT ON tgad.schema TO tgad_writer, tgad_reader, tgad_auditor, tgad_eraser; -- the version of these tables
GRANT SELECT, INSERT ON tgad.entries, tgad.notes, tgad.leaves TO tgad_writer;
GRANT SELECT, INSERT, UPDATE ON tgad.meta, tgad.sessions, tgad.heads, tgad.ledger, tgad.order_state TO tgad_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON tgad.attachments, tgad.checkpoints, tgad.pending TO tgad_writer;
GRANT DELETE ON tgad.sessions TO tgad_writer;
GRANT SELECT ON tgad.sessions, tgad.heads, tgad.entries, tgad.notes, tgad.checkpoints, tgad.ledger,
	tgad.attachments, tgad.order_state, tgad.pending, tgad.leaves TO tgad_reader;
GRANT SELECT ON tgad.sessions, tgad.heads, tgad.notes, tgad.ledger, tgad.order_state, tgad.pending, tgad.leaves TO tgad_auditor;
GRANT SELECT (shard, trace, seq, header) ON tgad.entries TO tgad_auditor;
GRANT SELECT (shard, trace, seq), UPDATE (parts, spill) ON tgad.entries TO tgad_eraser;

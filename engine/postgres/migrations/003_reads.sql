-- gone ends a late session without waiting for a standby: who asks who holds a trace changes nothing else, and is
-- answered also while no standby is there. What is appended because of the answer comes later in the log of the
-- database, and waits.
CREATE OR REPLACE FUNCTION tgad.gone(p_shard int4, p_by int8, p_session int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	UPDATE tgad.sessions late SET ended = true FROM tgad.sessions own
		WHERE late.shard = p_shard AND late.session = p_session AND NOT late.ended AND late.expires < clock_timestamp()
		AND own.shard = p_shard AND own.session = p_by AND NOT own.ended AND own.expires > clock_timestamp()
		AND own.steady < clock_timestamp() - late.lease;
	RETURN NOT EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = p_shard AND session = p_session AND NOT ended);
END $$;

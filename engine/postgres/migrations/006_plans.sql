-- Functions in SQL are planned each time that they are called, which cost a call about a tenth of what the server did for
-- it. Those in plpgsql keep their plans as long as their connection.
CREATE OR REPLACE FUNCTION tgad.in_time(p_shard int4, p_session int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = p_shard AND session = p_session AND NOT ended AND expires > clock_timestamp());
END $$;

CREATE OR REPLACE FUNCTION tgad.vouch(p_shard int4, p_session int8, p_trace uuid, p_epoch int8) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
DECLARE
	o_left int8;
BEGIN
	SELECT (extract(epoch FROM s.expires - clock_timestamp()) * 1000)::int8 INTO o_left
		FROM tgad.heads h JOIN tgad.sessions s ON s.shard = h.shard AND s.session = h.session
		WHERE h.shard = p_shard AND h.trace = p_trace AND h.session = p_session AND h.epoch = p_epoch AND NOT s.ended;
	RETURN coalesce(o_left, 0);
END $$;

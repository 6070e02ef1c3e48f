#!/bin/sh
# One governed tool call over tgad's socket, with curl.
#
#   call.sh SOCKET SERVER TOOL KEY ARGS
#
# ARGS is a JSON object and travels as it is. The answer is one JSON object on stdout.
# Exit codes: 0 the tool succeeded, 1 it did not or the call was refused, 2 usage,
# 4 in doubt: the tool may have run; never call again with another key.
#
# KEY names the logical call. After any failure of this script, run it again with the
# same key: tgad sends a call at most once and answers a repeat from its ledger.
set -eu
if [ $# -ne 5 ]; then
	echo "usage: $0 SOCKET SERVER TOOL KEY ARGS" >&2
	exit 2
fi
for name in "$2" "$3" "$4"; do
	case $name in
	*[!A-Za-z0-9_./:-]* | '') echo "$0: \"$name\" would need quoting in JSON" >&2; exit 2 ;;
	esac
done

answer=$(curl --silent --show-error --unix-socket "$1" http://tgad/v1/tool-calls \
	--header 'Content-Type: application/json' --header 'Tgad-Client: call.sh' --header 'Tgad-Timeout: 30s' \
	--data-binary '{"tool_server":"'"$2"'","tool_name":"'"$3"'","idempotency_key":"'"$4"'","args":'"$5"'}' \
	--write-out '\n%{http_code}') || exit 1
status=${answer##*
}
answer=${answer%
*}
printf '%s\n' "$answer"
case $answer in
*'"code":"EFFECT_IN_DOUBT"'*) exit 4 ;;
esac
[ "$status" = 200 ] || exit 1
case $answer in
*'"status":"SUCCESS"'*) ;;
*) exit 1 ;;
esac

#!/bin/sh
# An agent of your own that writes its run into a session, with curl.
#
#     ./forecast.sh http://localhost:8080 SESSION
set -eu
[ $# = 2 ] || { echo "usage: $0 SERVER SESSION" >&2; exit 2; }
url=$1/stream/$2
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# Repeats what got no answer or a 5xx, which is harmless: the server stores nothing twice.
post() {
  status=$(curl -sS -X POST --max-time 30 --retry 8 --retry-all-errors -o "$answer" -w '%{http_code}' "$@")
  [ "$status" = 200 ] || { echo "$status: $(cat "$answer")" >&2; exit 1; }
}

sent=0
append() { # COUNT CHUNKS
  post "$url" -H 'Content-Type: application/json' -H "Producer-Epoch: $epoch" -H "Producer-Seq: $sent" -d "$2"
  sent=$((sent + $1))
}

post "$url?claim&agent=forecaster&commandId=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
epoch=$(sed -n 's/.*"epoch": *\([0-9]*\).*/\1/p' "$answer")

append 1 '{"type": "text_delta", "delta": "Sunny"}'
append 1 '{"type": "text_delta", "delta": " today,"}'
append 2 '[{"type": "text_delta", "delta": " rain tomorrow."}, {"type": "end"}]'

#!/usr/bin/env python3
"""An agent of your own that writes its run into a session, with nothing but the standard library.

    python3 forecast.py http://localhost:8080 SESSION
"""
import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class Producer:
    """A claimed session. Calls may be repeated: the server stores nothing twice."""

    def __init__(self, server, session, agent):
        self.url = f"{server}/stream/{urllib.parse.quote(session, safe='')}"
        query = urllib.parse.urlencode({"claim": "", "agent": agent, "commandId": str(uuid.uuid4())})
        self.epoch = self._post(f"{self.url}?{query}", b"", {})["epoch"]
        self.sent = 0

    def append(self, *chunks):
        headers = {"Producer-Epoch": str(self.epoch), "Producer-Seq": str(self.sent)}
        self._post(self.url, json.dumps(chunks).encode(), headers)
        self.sent += len(chunks)

    @staticmethod
    def _post(url, body, headers):
        request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")
        for attempt in range(8):
            if attempt:
                time.sleep(min(0.1 * 2**attempt, 5))
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code < 500:  # refused: a repeat would be, too
                    raise SystemExit(f"{error.code}: {error.read().decode(errors='replace')}")
                last = error
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                last = error  # no whole answer: the server may have stored it or not
        raise SystemExit(f"{url}: {last}")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    run = Producer(sys.argv[1].rstrip("/"), sys.argv[2], "forecaster")
    run.append({"type": "text_delta", "delta": "Sunny"})
    run.append({"type": "text_delta", "delta": " today,"})
    run.append({"type": "text_delta", "delta": " rain tomorrow."}, {"type": "end"})


if __name__ == "__main__":
    main()

"""An HTTP service to try webhooks with: python webhook_receiver.py [PORT]. It prints what it is sent."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = (os.environ.get("WEBHOOK_SECRET") or "only for trying it").encode()
LONGEST_SECONDS = 300


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_signed(body):
            self.answer(401)
            return
        batch = json.loads(body)
        lines = []
        for change in batch["changes"]:
            what = json.dumps(change["key"] or change["sql"], ensure_ascii=False)
            lines.append(f"{batch['table']} {change['op']} {what}\n")
        print("".join(lines), end="", flush=True)  # one piece: other requests are printed at the same time
        self.answer(204)

    def do_OPTIONS(self) -> None:  # what `binlane check --connect` sends
        self.answer(204)

    def is_signed(self, body: bytes) -> bool:
        sent_at = self.headers.get("X-Binlane-Timestamp", "")
        expected = hmac.new(SECRET, sent_at.encode() + b"." + body, hashlib.sha256).hexdigest()
        given = self.headers.get("X-Binlane-Signature", "")
        if not hmac.compare_digest(f"sha256={expected}", given):
            return False
        return abs(time.time() - int(sent_at)) < LONGEST_SECONDS

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass  # one line for each change is enough


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"listening on http://localhost:{server.server_port}/changes; Ctrl-C stops it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()

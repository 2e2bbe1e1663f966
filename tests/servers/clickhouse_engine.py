"""ClickHouse's own engine (chdb) behind its HTTP interface, for `ClickHouseServer`: a process of its own.

`python clickhouse_engine.py FOLDER PORT USER PASSWORD`
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chdb.session import Session

_CODE = re.compile(r"Code: (\d+)\. ")
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$")
_INSERT = re.compile(r"(INSERT INTO (.+) \((.+)\)) FORMAT (RowBinaryWithNamesAndTypes)", re.DOTALL)
_OURS = ("query", "database", "user", "password", "wait_end_of_query")
_STATUS = {"516": 403, "497": 403, "60": 404, "81": 404, "241": 500, "159": 500, "202": 500}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: Session
    login: tuple[str, str]
    one = threading.Lock()  # the engine has one connection

    def do_GET(self) -> None:
        self._send(200, b"Ok.\n")

    def do_POST(self) -> None:
        asked = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        body = self._body()
        login = self.headers.get("X-ClickHouse-User"), self.headers.get("X-ClickHouse-Key")
        if login not in (self.login, (None, None)):  # without one it is `default`, who needs no password
            self._refuse("Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)")
            return
        settings = {name: value for name, value in asked.items() if name not in _OURS}
        try:
            with self.one:
                for name, value in settings.items():
                    self.session.query(f"SET {name} = '{value}'")
                self._send(200, self._run(asked.get("query"), body))
        except RuntimeError as error:
            self._refuse(str(error))

    def _run(self, query: str | None, body: bytes) -> bytes:
        if query is None:
            text = body.decode("utf-8")
            named = _FORMAT.search(text)
            found = self.session.query(_FORMAT.sub("", text), named[1] if named else "TSV")
            return bytes(found.bytes()) if found else b""
        insert = _INSERT.fullmatch(query)
        assert insert is not None, query
        kinds = dict(
            line.split("\t")[:2]
            for line in str(self.session.query(f"DESCRIBE TABLE {insert[2]}", "TSV")).splitlines()
        )
        names = [name.strip().strip("`") for name in insert[3].split(",")]
        shape = ", ".join(f"`{name}` {kinds[name]}" for name in names).replace("\\", "").replace("'", "\\'")
        with tempfile.NamedTemporaryFile() as rows:
            rows.write(body)
            rows.flush()
            self.session.query(f"{insert[1]} SELECT * FROM file('{rows.name}', '{insert[4]}', '{shape}')")
        return b""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _refuse(self, text: str) -> None:
        found = _CODE.search(text)
        code = found[1] if found else "1002"
        self._send(_STATUS.get(code, 400), text.encode(), {"X-ClickHouse-Exception-Code": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(folder: str, port: str, user: str, password: str) -> None:
    _Answers.session = Session(str(Path(folder)))
    _Answers.login = user, password
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Answers).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The options of the `webhook` handler that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.options.faults import check_options
from handlers.webhook.handler import WebhookHandler


@pytest.mark.parametrize(
    ("options", "path", "told"),
    [
        ({}, ("url",), "missing"),
        ({"url": "localhost/x"}, ("url",), "https://HOST"),
        ({"url": "ftp://h/x"}, ("url",), "https://HOST"),
        ({"url": "http:///x"}, ("url",), "https://HOST"),
        ({"url": "https://{table}.example/x"}, ("url",), "https://HOST"),
        ({"url": "https://example{table}/x"}, ("url",), "https://HOST"),
        ({"url": "http://h:port/x"}, ("url",), "https://HOST"),
        ({"url": "http://h/{key}"}, ("url",), "{key} is not allowed here"),
        ({"url": "http://h", "method": "GET"}, ("method",), "POST, PUT, PATCH"),
        ({"url": "http://h", "max_changes": 0}, ("max_changes",), "at least 1"),
        ({"url": "http://h", "headers": {"a b": "x"}}, ("headers",), "not a header name"),
        ({"url": "http://h", "headers": {"A": "x\nhunter22"}}, ("headers",), "value of A"),
        ({"url": "http://h", "headers": {"Content-Length": "5"}}, ("headers",), "sets Content-Length itself"),
        ({"url": "http://h", "signature": {}}, ("signature", "secret"), "missing"),
        (
            {"url": "http://h", "signature": {"secret": "x", "header": "a:b"}},
            ("signature", "header"),
            "header",
        ),
        ({"url": "http://h", "tls": {"verfy": False}}, ("tls", "verfy"), "nearest: verify"),
        ({"url": "http://h", "urls": "x"}, ("urls",), "nearest: url"),
    ],
)
def test_options_that_cannot_be_used_are_faults(
    options: dict[str, Any], path: tuple[str, ...], told: str
) -> None:
    (fault,) = check_options(WebhookHandler, options)
    assert fault.path == path
    assert told in fault.message
    assert "hunter22" not in fault.message

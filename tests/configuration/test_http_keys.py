"""The keys of `http`: its certificate, its token."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration.shorthand import Faults
from servers.own_authority import OwnAuthority


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        (
            "certificate: none.pem, key: tls-key.pem",
            "http.tls.certificate: none.pem cannot be read (No such",
        ),
        ("certificate: tls.pem, key: none.pem", "http.tls.key: none.pem cannot be read (No such"),
        (
            "certificate: tls.pem, key: ca.pem",
            "http.tls: tls.pem and ca.pem are not a certificate and its unencrypted key",
        ),
        ("certificate: tls.pem, key: other-key.pem", "its unencrypted key (KEY_VALUES_MISMATCH)"),
        ("certificate: tls.pem", "http.tls.key: missing"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_fault(
    faults: Faults, folder: Path, tls: str, told: str
) -> None:
    authority = OwnAuthority(folder)
    authority.server("tls")
    authority.server("other")
    [fault] = faults(f"http: {{tls: {{{tls}}}}}")
    assert told in fault


def test_a_short_token_is_a_fault_that_does_not_show_it(faults: Faults) -> None:
    [fault] = faults("http: {token: hunter2}")
    assert fault.startswith("shop.yaml:5: http.token: found ***; allowed: ")
    assert "hunter2" not in fault

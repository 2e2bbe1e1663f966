#!/bin/sh
# Looks the packages of constraints-hashed.txt up in PyPI's advisories. Exit 0: none is known to be vulnerable. A
# package that cannot be looked up is a failure: silence is no answer.
set -eu
cd "$(dirname "$0")/.."

PIP_AUDIT=2.10.1
environment=.venv/audit # removed with .venv

[ -x "$environment/bin/pip-audit" ] || {
    .venv/bin/python -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "pip-audit==$PIP_AUDIT"
}
exec "$environment/bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off \
    --requirement constraints-hashed.txt

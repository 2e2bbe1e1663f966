#!/bin/sh
# Runs Spark's tests with each Spark of tools/matrix.txt. Each has a virtual environment of its own, build/matrix/4.0,
# with its pyspark; all other packages are those of .venv.
#
#   matrix.sh           all of them
#   matrix.sh 4.0 ...   some
#   ARGS="-x"           for pytest
set -eu
cd "$(dirname "$0")/.."

SUITES="tests/handlers/spark_delta tests/handlers/spark_ddl tests/handlers/spark_log tests/handlers/spark_view
    tests/handlers/spark_engine tests/handlers/spark_pieces tests/handlers/spark_runtime tests/test_jars.py
    tests/handlers/spark_iceberg/test_iceberg_by_spark.py"
CONNECT="tests/handlers/spark_runtime/test_connect_sessions.py tests/handlers/spark_runtime/test_connect_frames.py"

say() { printf 'matrix: %s\n' "$*" >&2; }

# Makes the environment of this Spark, unless it is there, and prints its Python.
environment() {
    folder=build/matrix/$1
    python=$PWD/$folder/bin/python
    pinned=$(grep "^pyspark==$1\." tools/matrix.txt) || {
        say "tools/matrix.txt has no Spark $1"
        return 1
    }
    if [ "$(cat "$folder/pinned" 2>/dev/null || true)" != "$pinned" ]; then
        say "making $folder (once, a minute, 430 MB)"
        .venv/bin/python -m venv --clear --without-pip "$folder"
        echo "$pinned" >"$folder/list.txt"
        .venv/bin/python -m pip --python "$python" install --quiet --disable-pip-version-check --no-deps \
            --require-hashes --requirement "$folder/list.txt"
        others=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        echo "import site; site.addsitedir('$others')" >"$("$python" -c \
            'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth"
        mv "$folder/list.txt" "$folder/pinned"
    fi
    echo "$python"
}

# The tests with this Spark, an end-to-end run, and its Connect client with a server of the default Spark.
# shellcheck disable=SC2086 # one word for each file and option
test_with() {
    python=$(environment "$1") || return
    "$python" -m pytest --numprocesses=2 --dist=loadfile $SUITES ${ARGS:-} || return
    "$python" -m binlane demo || return
    BINLANE_TEST_CONNECT_SERVER=$PWD/.venv/bin/python "$python" -m pytest -n 0 $CONNECT ${ARGS:-}
}

[ $# -gt 0 ] || {
    found=$(sed -n 's/^pyspark==\([0-9]*\.[0-9]*\)\..*/\1/p' tools/matrix.txt)
    # shellcheck disable=SC2086 # one word for each version
    set -- $found
}
failed=
for spark in "$@"; do
    say "Spark $spark"
    test_with "$spark" || failed="$failed $spark"
done
[ -z "$failed" ] || {
    say "failed with Spark$failed"
    exit 1
}
say "passed with Spark $*"

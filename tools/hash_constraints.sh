#!/bin/sh
# Writes constraints-hashed.txt, image-hashed.txt, slim-hashed.txt and sbom-hashed.txt anew, after constraints.txt has
# changed: the same versions, for any Python from 3.11 on, with the SHA-256 of each file that the registry has of them.
# Needs uv: pip install uv
set -eu
cd "$(dirname "$0")/.."

compile() {
    uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-annotate --no-header \
        --constraint constraints.txt "$@"
}

{
    echo "# Made by tools/hash_constraints.sh from constraints.txt: what make installs."
    printf 'hatchling\neditables\nuv\n' | compile --extra dev pyproject.toml -
} >constraints-hashed.txt
{
    echo "# Made by tools/hash_constraints.sh from constraints.txt: what the image runs and is built with."
    printf 'hatchling\n' | compile --extra connect --extra otel --extra read --extra spark pyproject.toml -
} >image-hashed.txt
{
    echo "# Made by tools/hash_constraints.sh from constraints.txt: what the image without Spark runs and is built with."
    printf 'hatchling\n' | compile --extra otel pyproject.toml -
} >slim-hashed.txt
{
    echo "# Made by tools/hash_constraints.sh: what make dist writes the SBOM with."
    printf 'cyclonedx-bom>=7.5,<8\n' | compile -
} >sbom-hashed.txt

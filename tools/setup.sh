#!/bin/sh
# Makes everything that the Makefile's targets need, once: the virtual environment .venv with the versions of
# constraints.txt (each file by its hash), Java, and the jars of Kafka and Delta in the cache outside the project.
# What is there already is not touched, and then no network is needed.
#
#   setup.sh            all of that
#   setup.sh run        without the packages that only tests and checks need
#   setup.sh servers    what the tests start: PostgreSQL, MariaDB, Redis, Prometheus, Alertmanager, Chromium and OpenSearch
#   setup.sh dist       what make dist writes the SBOM with (into .venv/dist-tools, 40 MB)
#   setup.sh stores     Azurite, Azure's storage for `make soak` (node and npm, 370 MB)
#   setup.sh registry   Apicurio's schema registry for `make soak` (Maven, two minutes, 200 MB)
#   setup.sh api-server Kubernetes' API server and etcd for `make api-server` (Go; ten minutes, 3 GB)
#   setup.sh python     nothing: says which Python .venv would be made with
#   PYTHON=...          the Python to use (default: python3.13, 3.12, 3.11 or python3, the first that serves; one that
#                       was compiled without optimizations gives way to the distribution's)
set -eu
cd "$(dirname "$0")/.."

STAMP=.venv/binlane-setup # the digest of what was installed and "all" or "run", then the folders with the jars

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

# main all|run
main() {
    level=$1
    digest=$(cat pyproject.toml constraints-hashed.txt image-hashed.txt tools/setup.sh | sha256sum | cut -d' ' -f1)
    if ! environment_is_current; then
        make_environment
        begin_installing_java
        fill_environment
        echo "$digest $level" >"$STAMP"
        [ -z "$installs_java" ] || wait "$installs_java" || true # who needs it looks for it next
    fi
    java_is_there || install_java
    jars_are_there || fetch_jars
}

# --- Python -----------------------------------------------------------------------------------------------

environment_is_current() {
    [ -f "$STAMP" ] || return 1
    installed=$(head -n 1 "$STAMP")
    case "$installed" in *" all") level=all ;; esac # what was wanted once is kept up to date
    [ "$installed" = "$digest $level" ] || return 1
    current=$(home_of .venv/bin/python) || return 1
    [ -z "${PYTHON:-}" ] || [ "$current" = "$(home_of "$PYTHON")" ]
}

# Prints the version, such as 3.11; fails for one that is too old or does not run.
version_of() {
    "$1" -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit(1); print("%d.%d" % v[:2])' 2>/dev/null
}

# Prints the version and where the Python is installed of which it is, or of which its environment was made.
home_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.base_prefix)' 2>/dev/null
}

makes_environments() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null
}

make_environment() {
    python=$(find_python) || install_python
    version=$(version_of "$python")
    if ! makes_environments "$python"; then
        apt_install "python$version-venv" python3-venv ||
            fail "$python cannot make virtual environments: install python$version-venv"
    fi
    if [ "$(home_of .venv/bin/python || true)" != "$(home_of "$python")" ]; then
        say "making .venv with $python ($version)"
        "$python" -m venv --clear .venv
    fi
}

fill_environment() {
    case "$level" in
    run) list=image-hashed.txt ;;
    *) list=constraints-hashed.txt ;;
    esac
    say "installing the packages of $list (once, half a minute or more)"
    install_packages
    # Without isolation: the build's own packages are pinned, too.
    pip_install --no-build-isolation --editable .
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$@"
}

# uv fetches and unpacks several at a time, and compiles nothing that is never loaded: half of pip's time. Where it is
# not to be had, or does not reach what pip reaches, pip does it.
install_packages() {
    pinned uv >.venv/uv.txt
    pinned editables >.venv/editables.txt # by what the editable installation is made; the image needs none
    if pip_install --require-hashes --only-binary :all: --requirement .venv/uv.txt 2>/dev/null; then
        use_settings_of_pip
        .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes --no-deps \
            --requirement "$list" --requirement .venv/editables.txt && return
        say "uv could not install them: pip does"
    fi
    pip_install --require-hashes --requirement "$list" --requirement .venv/editables.txt
}

# Prints a package's lines of constraints-hashed.txt.
pinned() {
    sed -n "/^$1==/,/[^\\\\]\$/p" constraints-hashed.txt
}

# The index, the folders with packages and the certificates that pip is told to use: uv has its own words for them.
use_settings_of_pip() {
    settings=$(.venv/bin/python -m pip config list 2>/dev/null || true)
    index=$(of_pip index-url)
    more=$(of_pip extra-index-url)
    links=$(of_pip find-links)
    cert=$(of_pip cert)
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "$more" ] || export UV_INDEX="${UV_INDEX:-$more}"
    [ -z "$links" ] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$(echo "$links" | tr -s ' \n' ',,')}"
    [ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
    export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-20}" UV_NO_PROGRESS=1
}

# Prints what pip's configuration or environment says; nothing where they say nothing.
of_pip() {
    for place in :env: install global; do
        value=$(printf '%s\n' "$settings" | sed -n "s/^$place\.$1='\(.*\)'\$/\1/p")
        [ -z "$value" ] || break
    done
    printf '%b' "$value" # several are listed with \n between them
}

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if version_of "$candidate" >/dev/null; then
            if [ -n "${PYTHON:-}" ]; then echo "$candidate"; else quick_python "$candidate"; fi
            return
        fi
    done
    return 1
}

# Prints this one, or the distribution's where this one was compiled without --enable-optimizations, as pyenv does by
# default: a call of a function takes it twice as long. Distributions build theirs with profiles, and say it nowhere.
quick_python() {
    if is_slow "$1"; then
        for own in /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 /usr/bin/python3; do
            if version_of "$own" >/dev/null && makes_environments "$own"; then
                say "$1 was compiled without optimizations: $own is quicker (PYTHON=$1 takes it nevertheless)"
                echo "$own"
                return
            fi
        done
    fi
    echo "$1"
}

is_slow() {
    "$1" -c '
import sys, sysconfig
options = sysconfig.get_config_var("CONFIG_ARGS")
is_slow = sys.base_prefix != "/usr" and options and "--enable-optimizations" not in options
sys.exit(0 if is_slow else 1)'
}

install_python() {
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no Python 3.11 or later"
    apt_install python3 python3-venv || true
    python=$(find_python) || fail "Python 3.11 or later is needed: install it, or name it with PYTHON="
}

# --- Java -------------------------------------------------------------------------------------------------

java_is_there() {
    .venv/bin/python -c 'from handlers.spark.runtime.versions import find_java; find_java()' 2>/dev/null
}

# Where there is none at all, it comes beside the packages. Whether one that is there serves, only these can tell.
begin_installing_java() {
    installs_java=
    if [ -z "${JAVA_HOME:-}" ] && ! has_program java; then
        apt_install_java &
        installs_java=$!
    fi
}

apt_install_java() {
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless
}

install_java() {
    apt_install_java || true
    .venv/bin/python -c '
import sys
from handlers.spark.runtime.versions import JavaError, find_java
try:
    find_java()
except JavaError as fault:
    sys.exit(f"setup: {fault}")
'
}

# --- Jars -------------------------------------------------------------------------------------------------

jars_are_there() {
    folders=$(tail -n +2 "$STAMP")
    [ -n "$folders" ] || return 1
    echo "$folders" | while read -r folder; do
        [ -d "$folder" ] || return 1
    done
}

fetch_jars() {
    say "looking for the jars of Kafka and Delta (fetched the first time, half a minute)"
    folders=$(.venv/bin/python -c '
import sys
from concurrent.futures import ThreadPoolExecutor
from worker.observing import logs
from handlers.spark.runtime.jars import JarsError, delta_jars, kafka_jars
logs.configure("warning")  # standard output is for the folders
try:
    with ThreadPoolExecutor() as side_by_side:
        for jars in side_by_side.map(lambda find: find(), (kafka_jars, delta_jars)):
            print(jars[0].parent)
except JarsError as fault:
    sys.exit(f"setup: {fault}")
')
    printf '%s\n%s\n' "$digest $level" "$folders" >"$STAMP"
}

# --- Servers for the tests --------------------------------------------------------------------------------

servers() {
    search_jars
    missing=$(missing_servers)
    has_program faketime || missing="$missing faketime" # lets the clock jump in tests/storm
    [ -n "$missing" ] || return 0
    keep_services_off
    # shellcheck disable=SC2086 # one word for each package
    apt_install $missing || true
    missing=$(missing_servers)
    [ -z "$missing" ] || fail "the tests need servers that are missing: install$missing"
}

# OpenSearch is a Java program that comes as jars, as Kafka does; what is there is only looked at.
search_jars() {
    PYTHONPATH=tests:. .venv/bin/python tests/servers/search_node.py >&2
}

missing_servers() {
    # PostgreSQL's programs are outside PATH on Debian and its kin.
    has_program postgres /usr/lib/postgresql/*/bin /usr/pgsql-*/bin || printf ' postgresql'
    has_program mariadbd || printf ' mariadb-server'
    has_program redis-server || printf ' redis-server'
    has_program prometheus && has_program promtool || printf ' prometheus'
    has_program prometheus-alertmanager || has_program alertmanager || printf ' prometheus-alertmanager'
    has_program chromium || printf ' chromium' # opens the status page
    has_program openssl || printf ' openssl' # makes the certificates of the tests
}

# Whether a program is in PATH, in the folders where daemons are, or in those given.
has_program() (
    name=$1
    shift
    for folder in "$@" /usr/sbin /usr/local/sbin; do
        PATH="$PATH:$folder"
    done
    command -v "$name" >/dev/null
)

# The packages would start their servers as services of this machine; the tests start servers of their own.
keep_services_off() {
    policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ -d /usr/sbin ] && [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
}

# --- Releases -----------------------------------------------------------------------------------------------

dist() {
    folder=.venv/dist-tools
    [ "$(cat "$folder/installed" 2>/dev/null || true)" != "$(sha256sum <sbom-hashed.txt)" ] || return 0
    say "installing the packages of sbom-hashed.txt (once, some seconds)"
    rm -rf "$folder"
    pip_install --require-hashes --requirement sbom-hashed.txt --target "$folder"
    sha256sum <sbom-hashed.txt >"$folder/installed"
}

# --- Stores for the long tests ------------------------------------------------------------------------------

AZURITE=3.37.0

stores() {
    folder="${XDG_CACHE_HOME:-$HOME/.cache}/binlane/azurite"
    [ ! -f "$folder/node_modules/azurite/dist/src/blob/main.js" ] || return 0
    has_program npm || apt_install npm || fail "Azurite needs node and npm: install npm"
    say "installing Azurite $AZURITE (once, a minute)"
    mkdir -p "$folder"
    npm install --silent --no-audit --no-fund --prefix "$folder" "azurite@$AZURITE"
}

# --- A schema registry for the long tests ---------------------------------------------------------------------

registry() {
    folder="${XDG_CACHE_HOME:-$HOME/.cache}/binlane/registry"
    digest=$(sha256sum <tools/registry/pom.xml | cut -d' ' -f1)
    [ ! -f "$folder/$digest" ] || return 0
    has_program mvn || apt_install maven || fail "Apicurio's registry is put together by Maven: install maven"
    say "putting Apicurio's registry together (once, some minutes)"
    rm -rf "$folder"
    mkdir -p "$folder"
    # The last is only what a native image would be made with, and has to be something.
    mvn --quiet --batch-mode --file tools/registry/pom.xml "-Dmade.in=$folder" \
        -Dplatform.quarkus.native.builder-image=none package
    touch "$folder/$digest"
}

# --- Kubernetes' API server -------------------------------------------------------------------------------

api_server() {
    folder="${XDG_CACHE_HOME:-$HOME/.cache}/binlane/api-server"
    digest=$(cat tools/api_server/*.* tools/api_server/resources/* | sha256sum | cut -d' ' -f1)
    if ! has_program etcd; then
        keep_services_off
        apt_install etcd-server || fail "the API server needs etcd: install etcd-server"
    fi
    [ ! -f "$folder/$digest" ] || return 0
    has_program go || fail "the API server is built from its source: install Go 1.24 or later"
    say "building Kubernetes' API server (once, ten minutes)"
    tools/api_server/build.sh "$folder"
    touch "$folder/$digest"
}

# --- Debian -----------------------------------------------------------------------------------------------

# Installs packages where that is possible: on Debian and its kin, as root.
apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    if [ -z "${apt_is_updated:-}" ]; then
        apt-get update -qq >&2 || return 1
        apt_is_updated=yes
    fi
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@" >&2
}

case "${1:-}" in
"") main all ;;
run) main run ;;
servers) servers ;;
dist) dist ;;
stores) stores ;;
registry) registry ;;
api-server) api_server ;;
python) find_python || fail "Python 3.11 or later is needed" ;;
*) fail "there is no step $1; allowed: none, run, servers, dist, stores, registry, api-server, or python" ;;
esac

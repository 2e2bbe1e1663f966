# syntax=docker/dockerfile:1

# Two images: with Spark (the last stage, which is built unless another is named), and without it: --target slim.
# With --build-arg PYTHON_IMAGE=python@sha256:... from a digest of your own choice; see SECURITY.md.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS base
# Debian's own patch releases are wanted at each build: a pinned one vanishes from the archive.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
# A fixed uid that has a name: Hadoop's login fails for a uid that /etc/passwd does not know.
RUN groupadd --gid 10001 binlane \
    && useradd --uid 10001 --gid binlane --home-dir /var/lib/binlane --create-home --shell /usr/sbin/nologin binlane \
    && install --directory --owner=binlane --group=binlane --mode=0750 /var/lib/binlane/state
ENV PATH=/opt/binlane/bin:$PATH \
    XDG_CACHE_HOME=/opt/binlane/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1


# Java: Spark, and the Ivy that resolves its jars.
FROM base AS java
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*


FROM base AS build-slim
WORKDIR /src
RUN python -m venv /opt/binlane
# OpenTelemetry's packages are among them, for `tracing`.
COPY slim-hashed.txt ./
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement slim-hashed.txt
COPY pyproject.toml README.md LICENSE ./
COPY binlane ./binlane
COPY worker ./worker
COPY offsets ./offsets
COPY handlers ./handlers
# What builds it is in the list above, and not needed later.
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes hatchling pathspec pluggy trove-classifiers


FROM java AS build
WORKDIR /src
RUN python -m venv /opt/binlane
# The client of Spark Connect is among them, for `spark.remote`, and OpenTelemetry's packages, for `tracing`.
COPY image-hashed.txt ./
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement image-hashed.txt
COPY pyproject.toml README.md LICENSE ./
COPY binlane ./binlane
COPY worker ./worker
COPY offsets ./offsets
COPY handlers ./handlers
# What builds it is in the list above, and not needed later.
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes hatchling pathspec pluggy trove-classifiers
# Delta's jars are resolved here and found in the cache later: a start needs no network but Kafka's.
# Spark's classes are kept as Java maps them (200 MB): it starts in half the time.
RUN python -c "import handlers.spark.runtime.jars; handlers.spark.runtime.jars.delta_jars()" \
    && python -m handlers.spark.training \
    && chmod -R a+rX /opt/binlane/cache


FROM base AS slim
LABEL org.opencontainers.image.title="binlane" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-slim /opt/binlane /opt/binlane
WORKDIR /var/lib/binlane
VOLUME ["/var/lib/binlane"]
USER 10001:10001
EXPOSE 8080
# Alive as /healthz says: a broker's or a target's outage does not make it fail.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
# tini without -g: SIGTERM reaches the worker alone, never Spark's JVM, which must outlive the drain.
ENTRYPOINT ["tini", "--", "binlane"]
CMD ["run", "/etc/binlane/binlane.yaml"]


FROM java
LABEL org.opencontainers.image.title="binlane" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/binlane /opt/binlane
# The checkpoint, and whatever Spark leaves in its working folder.
WORKDIR /var/lib/binlane
VOLUME ["/var/lib/binlane"]
USER 10001:10001
EXPOSE 8080
# Alive as /healthz says: a broker's or a target's outage does not make it fail.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
# tini without -g: SIGTERM reaches the worker alone, never Spark's JVM, which must outlive the drain.
ENTRYPOINT ["tini", "--", "binlane"]
CMD ["run", "/etc/binlane/binlane.yaml"]

"""The worker over HTTP: status page and JSON, probes, metrics; who may ask for what."""

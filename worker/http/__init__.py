"""The worker's HTTP server: status page and JSON, probes, metrics, and access control."""

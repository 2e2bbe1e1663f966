"""Alibaba DTS's Avro records."""

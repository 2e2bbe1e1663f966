"""Avro as Kafka Connect's converters write it: schemas (`schema`), values (`values`), envelopes read by code
that is generated for each schema (`envelopes`, `code`), and schemas of Connect (`connect`)."""

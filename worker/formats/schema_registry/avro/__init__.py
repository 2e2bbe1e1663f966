"""Avro as Kafka Connect's converters write it: schemas (`schema`), values (`values`) and Connect's schemas
(`connect`). Code generated for each schema reads envelopes (`envelopes`, `code`)."""

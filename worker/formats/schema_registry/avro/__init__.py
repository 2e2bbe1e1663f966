"""Avro as Kafka Connect's converters write it: schemas (`schema`), values (`values`), whole rows by code that
is made for each schema (`rows`), and what a schema is to Connect (`connect`)."""

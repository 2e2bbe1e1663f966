"""Records with schemas in a registry: Avro, JSON Schema and Protobuf after a schema's id. They are converted
to Debezium's JSON, which `worker.formats.debezium` reads."""

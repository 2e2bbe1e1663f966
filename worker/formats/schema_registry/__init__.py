"""Records whose schemas a registry keeps: Avro, JSON Schema and Protobuf behind an id. They become what
Debezium's JSON is, and `worker.formats.debezium` says what that means."""

"""Protobuf as Kafka Connect's ProtobufConverter writes it: schemas (`descriptors`), their schemas in Connect
(`connect`), and values (`values`)."""

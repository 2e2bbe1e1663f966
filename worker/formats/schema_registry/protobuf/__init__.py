"""Protobuf as Kafka Connect's ProtobufConverter writes it: schemas (`descriptors`), what they are to Connect
(`connect`), and values (`values`)."""

"""Canal's packets, which it writes to Kafka unless `canal.mq.flatMessage` is true."""

"""Canal's packets: what it writes to Kafka unless `canal.mq.flatMessage` is true."""

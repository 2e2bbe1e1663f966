"""The segment log of a table: what was received, durable and in order, before it is merged. `stores` is
where its files can be."""

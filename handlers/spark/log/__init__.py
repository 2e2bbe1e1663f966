"""The segment log: what a table received, durable and in order, before it is merged into the table."""

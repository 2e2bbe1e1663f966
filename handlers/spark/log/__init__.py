"""The segment log of a table: received changes, durable and in order, before they are merged. `stores`
contains the places for its files. A pack has rows of many tables: a small batch needs no file of its own."""

"""Rules for a table's columns and rows: which ones reach handlers, under which names and in what form. They
are applied to changes and statements before any handler sees these."""

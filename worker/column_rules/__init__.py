"""Which columns and rows of a table leave, under which names and in what form: the rules, and what they make
of changes and statements before any handler sees them."""

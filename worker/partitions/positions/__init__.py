"""Where a worker stands, as its stores tell it from outside; the worker itself uses none of it."""

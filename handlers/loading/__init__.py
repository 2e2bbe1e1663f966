"""Loading of handlers and functions by name or import path, with checks that the worker can call
them."""

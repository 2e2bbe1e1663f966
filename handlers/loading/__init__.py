"""From names in a configuration to code: handlers and functions by name or import path, and what may be
called of them."""

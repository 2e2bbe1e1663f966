"""The running tables of a handler: a sink per table writes its log, and mergers merge waiting segments. The
keeper tidies files."""

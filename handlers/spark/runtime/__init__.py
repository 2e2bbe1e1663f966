"""The Spark of this process: Java, jars, the session that all handlers share, and its monitoring."""

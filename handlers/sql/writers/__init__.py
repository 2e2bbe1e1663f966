"""Write rows with each database's own statements. `writer` contains the common part."""

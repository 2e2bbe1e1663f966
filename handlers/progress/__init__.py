"""Progress stored in targets with transactions: marks, recreated topics, and changes that are
skipped."""

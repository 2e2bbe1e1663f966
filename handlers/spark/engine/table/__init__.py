"""One source table on its way into one Spark table: its log grows (`sink`), and is merged later
(`merges`)."""

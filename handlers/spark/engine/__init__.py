"""The tables of a handler at work: a sink for each table takes batches into its log, mergers bring what
waits into the tables, the keeper looks after files."""

"""Child processes that decode batches and run handlers (`lanes.processes`). Order stays with the worker."""

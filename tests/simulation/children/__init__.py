"""Child processes of `lanes.processes` in a run: what is drawn of them, what goes wrong, what must hold."""

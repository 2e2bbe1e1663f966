"""Source tables, the records that tools write of them, and what targets must hold in the end. See
CONTRIBUTING.md, "The model of sources and targets"."""

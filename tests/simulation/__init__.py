"""Whole workers under a seeded scheduler and a virtual clock. The code is the worker's own; Kafka, the disk,
the time and the handlers are models. See CONTRIBUTING.md, "The simulation"."""

"""Whole workers on real brokers and databases, while a seeded schedule of faults goes over them.

`python -m storm` (in `tests`) is one storm, `test_storm.py` a short one. What is started, and by whom it is
judged: `rig.py`.
"""

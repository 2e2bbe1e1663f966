"""Records that hold up their partition: detected, reported, and set aside if a person says so."""

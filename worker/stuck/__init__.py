"""Records that hold up their partition: seen, told of, and moved out of the way when a person says so."""

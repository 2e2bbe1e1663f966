"""What is looked at over the whole configuration: keys that must agree, tables in one place, what is
probably not meant."""

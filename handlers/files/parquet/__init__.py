"""Changes as Parquet files, on a disk or in an object store: each change in one file, exactly once."""

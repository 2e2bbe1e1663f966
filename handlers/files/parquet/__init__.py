"""Changes as Parquet files, on disk or in an object store: each change is in exactly one file."""

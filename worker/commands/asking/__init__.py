"""Commands that send requests to a running worker."""

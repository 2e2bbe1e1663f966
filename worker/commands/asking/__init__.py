"""Commands that ask a running worker over HTTP."""

"""One handler and one batch: attempts, backoff, splitting until the failing change stands alone, and the
circuit of a target that is down."""

"""One handler and one batch: attempts, backoff, splitting down to the failing change, and the circuit of a
target that is down."""

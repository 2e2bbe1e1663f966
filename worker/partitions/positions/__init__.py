"""A worker's positions, as its stores show them to commands. The worker itself uses none of this."""

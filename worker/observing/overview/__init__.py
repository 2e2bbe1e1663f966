"""A worker at a glance: what is wrong and what to do, the last hour, and what happened in it."""

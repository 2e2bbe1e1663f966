"""One table of the target built again beside the one that is there, and then put into it at one go."""

"""One Spark table built again beside the one that is there, and then put into its log at one go."""

"""What is asked of the consumer at once, when, and what it gave."""

"""What a process stands on: turns and time, threads and locks, the disk; how the worker's modules get it."""

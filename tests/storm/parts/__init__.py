"""What a storm is made of: brokers, the network before them, disks, workers, and what they are given."""

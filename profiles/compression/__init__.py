"""What compressors of gradients send, and what they spoil over a training run."""

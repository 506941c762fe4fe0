"""Plans for `torch.compile`, and as policies of selective checkpointing: the kernels are PyTorch's."""

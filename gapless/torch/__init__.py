"""Everything that needs PyTorch, the extra `torch`: steps captured and run, gradients measured, embeddings cached.

Nothing else in gapless but the command line imports this package.
"""

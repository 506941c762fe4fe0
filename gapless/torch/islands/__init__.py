"""Parts of a model that can't be captured, and run by eager autograd between planned operators."""

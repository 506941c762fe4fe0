"""transformers for the modules that need it, or one line that says how to get it: the extra `hf`, which has PyTorch."""

from __future__ import annotations

from gapless.extras import missing_extra

try:
    import torch  # noqa: F401  # transformers loads without it, and then has no models
    import transformers
    from transformers.cache_utils import Cache, DynamicLayer
    from transformers.masking_utils import eager_mask
except ImportError as error:
    raise missing_extra("a language model", error.name or "transformers", "hf") from None

__all__ = ["Cache", "DynamicLayer", "eager_mask", "transformers"]

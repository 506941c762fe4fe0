"""Compressors of gradients: names, settings, bytes, costs, classes of error, and how each is sent.

A file a family. One that is added here, with its `KINDS`, is known everywhere: to profiles, plans and processes.
"""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)

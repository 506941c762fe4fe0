"""Compressors of gradients: names, settings, bytes, costs, classes of error, and how each is sent.

A file a family. One that is added here, with its `KINDS`, is known everywhere: to profiles, plans and processes.
"""

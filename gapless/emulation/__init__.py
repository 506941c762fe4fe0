"""Clusters on one machine, out of network namespaces: what a plan does on cables, before a cluster is rented."""

from gapless.emulation.cluster import Cluster, Ended, Running, emulated_cluster
from gapless.emulation.namespaces import why_no_cluster
from gapless.emulation.probe import lone_transfer

__all__ = ["Cluster", "Ended", "Running", "emulated_cluster", "lone_transfer", "why_no_cluster"]

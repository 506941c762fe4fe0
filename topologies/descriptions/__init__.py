"""What machines say of themselves, as topology files: nvidia-smi's matrix, NCCL's dump, hwloc's XML, nccl-tests."""

from gapless.topologies.descriptions.convert import Rates, describe
from gapless.topologies.descriptions.nccl_tests import Measured, read_measured

__all__ = ["Measured", "Rates", "describe", "read_measured"]

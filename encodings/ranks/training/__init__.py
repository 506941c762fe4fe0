"""What trains: the run of a plan beside others, controllers that decide meanwhile, and the trace of a training."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)

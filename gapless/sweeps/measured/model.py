"""A model of what configurations measure: a Gaussian process over their settings, for those that no run, or few, have
seen.

A metric is taken to be smooth in the settings: a quadratic plus what a Matern kernel adds to it, and noise that is the
same everywhere. Lengths and sizes are the likeliest ones for what was measured. A number's place among the values of
its field counts, not its size, since people write grids in the steps that matter (1, 4, 16, 64).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.installation.extras import missing_extra
from gapless.sweeps.sweep_file import Value

__all__ = ["Posterior", "check_installed", "fitted", "placed"]

_RIDGE = 1e-9
"""Of the variance of what was measured, added to a covariance that rounding leaves without a root."""


@dataclass(frozen=True)
class Posterior:
    """What a metric's true means may be, all at once, by configuration: normal with this mean and covariance."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation of each."""
        return np.sqrt(np.clip(np.diag(self.covariance), 0.0, None))

    def exceeds(self, place: int, other: int) -> tuple[float, float]:
        """By how much the one is above the other: mean and standard deviation."""
        variance = self.covariance[place, place] + self.covariance[other, other] - 2 * self.covariance[place, other]
        return float(self.mean[place] - self.mean[other]), float(np.sqrt(max(variance, 0.0)))

    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """So many draws, of shape (count, configurations)."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        return np.asarray(self.mean + generator.standard_normal((count, len(values))) @ root.T)


def check_installed() -> None:
    """Raise `InputError` where the library of the model is missing."""
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra(
            "choosing from less than the first runs of each configuration", "scikit-learn", "choose"
        ) from None


def placed(settings: Sequence[Mapping[str, Value]]) -> NDArray[np.float64]:
    """The settings as numbers from -0.5 to 0.5, of shape (configurations, columns).

    A field of numbers is one column, by the place of a value among all; of texts, a column for each but the first.
    Where some configurations lack a field, one more column says so.
    """
    columns: list[list[float]] = []
    for name in dict.fromkeys(name for values in settings for name in values):
        found = [values.get(name) for values in settings]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            columns.append([float(value is None) for value in found])
        if all(isinstance(value, (int, float)) for value in known):  # true and false are numbers, too
            steps = sorted({float(value) for value in known})
            place = {value: number / max(len(steps) - 1, 1) for number, value in enumerate(steps)}
            columns.append([0.5 if value is None else place[float(value)] for value in found])
        else:
            names = sorted({str(value) for value in known})
            columns.extend([float(value is not None and str(value) == name) for value in found] for name in names[1:])
    varied = [column for column in columns if len(set(column)) > 1]
    return np.array(varied).reshape(len(varied), len(settings)).T - 0.5


def fitted(points: NDArray[np.float64], places: Sequence[int], values: NDArray[np.float64], seed: int) -> Posterior:
    """What the means of all `points` may be, after `values[n]` was measured at `points[places[n]]`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor

    centre, spread = float(values.mean()), float(values.std())
    if spread == 0:
        return Posterior(np.full(len(points), centre), np.zeros((len(points), len(points))))
    regressor = GaussianProcessRegressor(_kernel(points.shape[1]), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its limit says that the field doesn't matter
        regressor.fit(points[list(places)], (values - centre) / spread)
    smooth = regressor.kernel_.k1  # without the noise of a run
    between = smooth(points, regressor.X_train_)
    root = np.linalg.solve(regressor.L_, between.T)
    covariance = smooth(points) - root.T @ root + _RIDGE * np.eye(len(points))
    return Posterior(centre + spread * (between @ regressor.alpha_), spread**2 * covariance)


def _kernel(columns: int) -> Any:
    """A quadratic, a smooth rest that has its own length in each column, and noise; sizes in standard deviations.

    No length is below a sixth of a field's values, so that a dozen points show a slope in spite of noise.
    """
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

    rest = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.full(columns, 0.5), (0.15, 20.0), nu=2.5)
    quadratic = ConstantKernel(1.0, (1e-2, 1e3)) * DotProduct(1.0, (0.1, 10.0)) ** 2
    return rest + quadratic + WhiteKernel(0.1, (1e-6, 10.0))

"""What a free convolution with a semicircle asks of a law of eigenvalues.

With z = u + i v, v >= 0, and w = v^2 the integrals over a law mu of eigenvalues s are

    F = integral mu(ds)/|z - s|^2,  F2 = integral mu(ds)/|z - s|^4,  D = integral (u - s) mu(ds)/|z - s|^4,

and the real part of G(z) = integral mu(ds)/(z - s). All but the last two are sums of positive terms, so that none
loses digits as v goes to zero, where -Im G/v would. A point u is given as an anchor, one of the end points of the
support, and an offset from it: beside an eigenvalue of 300 a band of width 1e-6 still has all its digits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from solve.atom_clusters import Index
from solve.nodes import Array

__all__ = ["AbstractBase", "AbstractField", "Kernel"]


class Kernel(NamedTuple):
    """The four integrals at given points: F, F2, D and Re G of the module's docstring."""

    f: Array
    f2: Array
    d: Array
    g: Array


class AbstractField(ABC):
    """The integrals at points near those that it was made for. Shapes: offset and w (groups, points)."""

    @abstractmethod
    def slopes(self, offset: Array, w: Array) -> tuple[Array, Array]:
        """F and F2."""

    @abstractmethod
    def kernel(self, offset: Array, w: Array) -> Kernel: ...

    @abstractmethod
    def argument(self, offset: Array, w: Array) -> Array:
        """integral arg(z - s) mu(ds), between 0 (far right) and pi (far left)."""


class AbstractBase(ABC):
    """A law of eigenvalues with bounded support."""

    anchors: Array  # the end points of the support's components, ascending; of an atom both are one
    components: Index  # (n, 2): the anchors of the two ends of each component, ascending
    order: int  # nodes a panel
    near: int  # points in a group, a divisor of the order
    ripples: bool  # v(u) may oscillate many times in a panel

    @abstractmethod
    def field(self, anchor: Index, low: Array, high: Array, v_low: Array, v_high: Array) -> AbstractField:
        """For groups of points in [low, high] off the anchor with v_low <= v <= v_high: all arrays (groups,)."""

    @abstractmethod
    def reach(self, t: float) -> Array:
        """(n, 2): lower bounds of the distance from each component's ends to where F(u, 0) = 1/t, without a gap."""

    @abstractmethod
    def bounds(self, t: float, anchor: Index, offset: Array) -> tuple[Array, Array]:
        """Bounds (groups,) of v where F = 1/t, for the fields of those groups; loose where none are needed."""

    @property
    @abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Positions and masses of the atoms."""

    @abstractmethod
    def moments(self, n: int) -> Array:
        """E s^k, k = 0 .. n."""

    @property
    def mean(self) -> float:
        return float(self.moments(1)[1])

    @property
    def second_moment(self) -> float:
        return float(self.moments(2)[2])

    @property
    def support(self) -> Array:
        """(n, 2): the components of the support, an atom by itself being one of length zero."""
        return self.anchors[self.components]

    def nearest(self, position: Array) -> Index:
        """The anchor nearest to each position."""
        if len(self.anchors) == 1:
            return np.zeros(position.shape, dtype=np.intp)
        right = np.clip(np.searchsorted(self.anchors, position), 1, len(self.anchors) - 1)
        nearer_left = position - self.anchors[right - 1] < self.anchors[right] - position
        return right - nearer_left

    def stieltjes(self, z: complex) -> complex:
        """G(z) = integral mu(ds)/(z - s); Im z != 0, or z off the support."""
        anchor = self.nearest(np.array([z.real]))
        offset, v = z.real - self.anchors[anchor], np.array([abs(z.imag)])
        at = self.field(anchor, offset, offset, v, v).kernel(offset[:, None], v[:, None] ** 2)
        return complex(at.g[0, 0], -z.imag * at.f[0, 0])

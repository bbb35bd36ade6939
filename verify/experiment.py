"""What a family compares: a simulation, and the predictions of its columns at each size."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.equations import EquationSystem
from derive.task import Derivation
from solve.solution import Solution
from verify.simulation import AbstractSimulation, Ensemble

__all__ = ["Columns", "Experiment", "experiment"]

Columns: TypeAlias = Mapping[sp.Symbol, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Experiment:
    """simulation: observes some columns. predict: those columns for an ensemble's size and axis, from a system.

    The system is an argument, so that a wrong one can be put in its place. reference: a simulation of equal law,
    with its learning rate times a factor, for a comparison at each size. wrong: the flows whose drift a negative
    control multiplies, all of them if None. moved: of a theory without flows, the columns with the parameter
    `moved_name` times a factor, for the negative control.
    """

    simulation: AbstractSimulation
    predict: Callable[[EquationSystem, Ensemble], Columns]
    axis: str
    label: str
    reference: Callable[[float], AbstractSimulation] | None = None
    wrong: sp.Symbol | None = None
    moved: Callable[[float], Columns] | None = None
    moved_name: str = ""


def experiment(derivation: Derivation[Any], solution: Solution) -> Experiment:
    """The experiment of the derivation's family, from the function `experiment` of verify.simulations.<family>."""
    family = type(derivation.task).__module__.rpartition(".")[2]
    module = importlib.import_module(f"verify.simulations.{family}")
    found: Experiment = module.experiment(derivation, solution)
    return found

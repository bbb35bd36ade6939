"""The equation system: closedness, the graph, blocks in a solvable order, smallest states."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError

import networkx as nx
import pytest
import sympy as sp

from derive.equations import Block, Define, Equation, EquationSystem, Flow, Quantity, Root, Source
from derive.expectation import Expectation
from derive.measures import Gaussian

DERIVED = Source("derived", "the test")
a, b, c, d, e = sp.symbols("a b c d e", real=True)


def quantity(s: sp.Symbol) -> Quantity:
    return Quantity(s, f"meaning of {s}")


def define(s: sp.Symbol, rhs: sp.Expr) -> Define:
    return Define(quantity(s), sp.S(rhs), DERIVED)


def flow(s: sp.Symbol, rhs: sp.Expr) -> Flow:
    return Flow(quantity(s), sp.S(rhs), DERIVED)


def root(s: sp.Symbol, rhs: sp.Expr) -> Root:
    return Root(quantity(s), sp.S(rhs), DERIVED)


def unknowns(blocks: Iterable[Block]) -> list[tuple[sp.Symbol, ...]]:
    return [block.unknowns for block in blocks]


# ---- closedness ----------------------------------------------------------------------------------------------


def test_what_is_read_must_be_known() -> None:
    with pytest.raises(ValueError, match="not closed: c, d appear on a right-hand side") as error:
        EquationSystem((define(a, b + d), define(b, c)))
    assert "Add an equation or a parameter for each" in str(error.value)
    assert "other assumptions" not in str(error.value)


def test_a_twin_symbol_is_named() -> None:
    twin = sp.Symbol("b", positive=True)
    with pytest.raises(ValueError, match=r"A symbol named b with other assumptions exists"):
        EquationSystem((define(a, twin), define(b, 1)))
    with pytest.raises(ValueError, match=r"A symbol named c with other assumptions exists"):
        EquationSystem((define(a, sp.Symbol("c")),), (quantity(c),))


def test_starts_must_be_known() -> None:
    with pytest.raises(ValueError, match="not closed: d appear"):
        EquationSystem((flow(a, -a),), (), {a: 1 / sp.sqrt(d)})
    assert EquationSystem((flow(a, -a),), (quantity(d),), {a: 1 / sp.sqrt(d)}).missing() == frozenset()


def test_a_start_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="b"):
        EquationSystem((flow(a, -a),), (), {b: sp.S.One})


def test_bound_variables_are_not_read() -> None:
    x = sp.Symbol("x", real=True)
    mean = Expectation(sp.tanh(x + b), [x], Gaussian([0], [[c]]))
    system = EquationSystem((define(a, mean),), (quantity(b), quantity(c)))
    assert system.equation(a).reads() == {b, c}


@pytest.mark.parametrize(
    ("equations", "parameters"),
    [
        ((define(a, 1), define(a, 2)), ()),
        ((define(a, 1),), (quantity(a),)),
        ((define(a, 1), define(sp.Symbol("a"), 2)), ()),
    ],
)
def test_each_name_is_given_once(equations: tuple[Equation, ...], parameters: tuple[Quantity, ...]) -> None:
    with pytest.raises(ValueError, match=r"EquationSystem: a is given more than once"):
        EquationSystem(equations, parameters)


def test_looking_up() -> None:
    system = EquationSystem((define(a, b), flow(c, a)), (quantity(b),))
    assert (system.symbol("c"), system.equation(c)) == (c, system.equations[1])
    with pytest.raises(KeyError, match="No quantity 'z' here; there are a, c, b"):
        system.symbol("z")
    with pytest.raises(KeyError, match="b is not an unknown; the unknowns are a, c"):
        system.equation(b)


def test_nothing_can_be_changed() -> None:
    system = EquationSystem((define(a, 1),))
    with pytest.raises(FrozenInstanceError):
        system.equations = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        system.equations[0].rhs = a  # type: ignore[misc]


# ---- graph and blocks ----------------------------------------------------------------------------------------


def test_edges_go_from_what_is_read() -> None:
    system = EquationSystem((define(a, b * e), flow(b, a - b), define(c, a)), (quantity(e), quantity(d)))
    assert set(system.graph().edges) == {(b, a), (e, a), (a, b), (b, b), (a, c)}
    assert set(system.graph().nodes) == {a, b, c, d, e}


def test_an_explicit_chain_is_solved_from_its_source() -> None:
    system = EquationSystem((define(a, b), define(b, c), define(c, e)), (quantity(e),))
    assert unknowns(system.blocks()) == [(c,), (b,), (a,)]
    assert all(block.state == () and len(block.stages) == 1 for block in system.blocks())


def test_an_equation_that_reads_itself_has_a_state() -> None:
    (block,) = EquationSystem((define(a, sp.cos(a)),)).blocks()
    assert (block.state, block.stages, block.is_flow) == ((a,), (), False)


def test_roots_and_flows_are_always_states() -> None:
    (block,) = EquationSystem((root(a, b - 2), define(b, a**2))).blocks()
    assert (block.state, block.stages) == ((a,), (block.equations[1],))
    single, after = EquationSystem((flow(a, -1), define(b, a))).blocks()
    assert (single.state, single.is_flow, after.state, after.is_flow) == ((a,), True, (), False)


def test_flows_that_read_each_other_are_one_block() -> None:
    system = EquationSystem((flow(a, b * c), define(c, a + b), flow(b, -a), define(d, c)))
    first, last = system.blocks()
    assert set(first.unknowns) == {a, b, c}
    assert (set(first.state), [s.unknown.symbol for s in first.stages]) == ({a, b}, [c])
    assert (last.unknowns, last.state) == ((d,), ())


def test_the_state_of_ridge_regression_is_half_of_the_block() -> None:
    names = sp.symbols("mhat qhat Vhat m q V", real=True)
    mh, qh, vh, m, q, v = names
    system = EquationSystem((
        define(mh, 1 / (1 + v)), define(qh, (1 + q - 2 * m) / (1 + v) ** 2), define(vh, 2 / (1 + v)),
        define(m, mh / (1 + vh)), define(q, (mh**2 + qh) / (1 + vh) ** 2), define(v, 1 / (1 + vh)),
    ))  # fmt: skip
    blocks = system.blocks()
    assert unknowns(blocks) == [(vh, v), (mh,), (m,), (qh, q)]
    assert [len(block.state) for block in blocks] == [1, 0, 0, 1]


# ---- random systems against plain definitions ----------------------------------------------------------------


def _random_system(seed: int) -> EquationSystem:
    rng = random.Random(seed)
    symbols = sp.symbols(f"q1:{rng.randint(3, 8)}", real=True)
    equations: list[Equation] = []
    for s in symbols:
        read = [r for r in symbols if rng.random() < 0.3]
        kind = rng.choice((define, define, define, flow, root))
        equations.append(kind(s, sp.Add(*read) + 1))
    return EquationSystem(tuple(equations))


def _is_acyclic(keep: Sequence[sp.Symbol], reads: Mapping[sp.Symbol, frozenset[sp.Symbol]]) -> bool:
    """Kahn's elimination."""
    left = set(keep)
    while left:
        free = {s for s in left if not reads[s] & left}
        if not free:
            return False
        left -= free
    return True


@pytest.mark.parametrize("seed", range(40))
def test_blocks_are_the_strong_components_in_a_solvable_order(seed: int) -> None:
    system = _random_system(seed)
    blocks = system.blocks()
    assert sorted(map(str, itertools.chain(*unknowns(blocks)))) == sorted(map(str, system.unknowns))
    reach = nx.transitive_closure(system.graph(), reflexive=True)
    for s, r in itertools.product(system.unknowns, repeat=2):
        together = any(s in block.unknowns and r in block.unknowns for block in blocks)
        assert together == (reach.has_edge(s, r) and reach.has_edge(r, s))
    solved: set[sp.Symbol] = set()
    for block in blocks:
        solved |= set(block.unknowns)
        assert all(equation.reads() <= solved for equation in block.equations)


@pytest.mark.parametrize("seed", range(40))
def test_states_are_the_smallest_that_make_the_rest_explicit(seed: int) -> None:
    for block in _random_system(seed).blocks():
        reads = {q.unknown.symbol: q.reads() & set(block.unknowns) for q in block.equations}
        forced = {q.unknown.symbol for q in block.equations if not isinstance(q, Define)}
        assert forced <= set(block.state)
        known = set(block.state)
        for stage in block.stages:
            assert reads[stage.unknown.symbol] <= known
            known.add(stage.unknown.symbol)
        assert known == set(block.unknowns)
        free = [s for s in block.unknowns if s not in forced]
        for smaller in range(len(block.state) - len(forced)):
            for extra in itertools.combinations(free, smaller):
                assert not _is_acyclic([s for s in free if s not in extra], reads)


def test_the_same_system_gives_the_same_blocks() -> None:
    assert _random_system(7).blocks() == _random_system(7).blocks()

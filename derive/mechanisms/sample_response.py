"""The response of a trained vector on one sample, and its averages against what the sample shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from derive.mechanisms.linear_forms import Forms
from derive.mechanisms.responses import Model, Vector
from derive.mechanisms.sample_law import SIGNAL, Direction, SampleLaw, State, TokenForm, token_unit

__all__ = ["SampleResponse"]


@dataclass(frozen=True)
class SampleResponse:
    """d loss / d (X w), or d loss / d b, w or b = `symbol`, on a sample of `law`, at the given vectors and biases.

    Averages are taken token by token, one for each class of tokens that are alike, where these are closed or of low
    dimension; otherwise of the sum over tokens.
    """

    model: Model
    symbol: sp.Symbol
    law: SampleLaw
    states: Mapping[sp.Symbol, State]
    biases: Mapping[sp.Symbol, sp.Expr]
    zero: frozenset[sp.Symbol]

    # ---- entries ------------------------------------------------------------------------------------------
    @cached_property
    def classes(self) -> list[list[int]]:
        """Tokens that are alike: all of the same signal, or each by itself."""
        groups: dict[object, list[int]] = {}
        for i, s in enumerate(self.law.case.signal):
            groups.setdefault(s if self.model.exchangeable else i, []).append(i)
        return list(groups.values())

    @cached_property
    def _in_fields(self) -> dict[int, sp.Expr]:
        """Entries of the first token of each class, in the symbols of fields."""
        label = self.law.case.label
        return {
            tokens[0]: self.model.response(self.symbol, tokens[0], label, self.zero).xreplace(self.biases)
            for tokens in self.classes
        }

    @cached_property
    def is_zero(self) -> bool:
        return all(e == 0 for e in self._in_fields.values())

    @cached_property
    def _first(self) -> dict[int, sp.Expr]:
        return self._written(self._in_fields)

    @cached_property
    def _all(self) -> dict[int, sp.Expr]:
        """All entries, defined in the law."""
        entries = {
            i: self._in_fields[tokens[0]].xreplace(self._exchange(tokens[0], i))
            for tokens in self.classes
            for i in tokens
        }
        return {i: self.law.define(e) for i, e in self._written(entries).items()}

    def _exchange(self, i: int, j: int) -> dict[sp.Symbol, sp.Symbol]:
        return {v.fields[a]: v.fields[b] for v in self.model.vectors for a, b in ((i, j), (j, i))}

    def _written(self, entries: Mapping[int, sp.Expr]) -> dict[int, sp.Expr]:
        """Entries in the symbols of the law: by few linear forms of fields, or by all fields where these are fewer."""
        written = dict(entries)
        fields = frozenset(x for v in self.model.vectors for x in v.fields)
        for vector in self.model.vectors:
            forms = Forms(frozenset(vector.fields), self.law.symbols | fields - set(vector.fields))
            in_forms = {i: forms.rewrite(e) for i, e in written.items()}
            if len(forms.found) < self.law.length:
                shown = {
                    f.symbol: self._field(vector, [f.coefficients.get(x, sp.S.Zero) for x in vector.fields])
                    for f in forms.found
                }
                written = {i: e.xreplace(shown) for i, e in in_forms.items()}
            else:
                shown = {x: self._field(vector, self._unit(i)) for i, x in enumerate(vector.fields)}
                written = {i: e.xreplace(shown) for i, e in written.items()}
        return written

    def _field(self, vector: Vector, form: Sequence[sp.Expr]) -> sp.Expr:
        return self.law.field(self.states[vector.symbol], tuple(form))

    def _unit(self, token: int) -> TokenForm:
        return token_unit(self.law.length, token)

    # ---- averages -----------------------------------------------------------------------------------------
    def scalar_mean(self) -> sp.Expr:
        """E of the derivative in a scalar."""
        entry = self.model.scalar_response(self.symbol, self.law.case.label, self.zero).xreplace(self.biases)
        return self.law.mean(self._written({0: entry})[0])

    def along(self, direction: Direction) -> sp.Expr:
        """E[r . (<xi, e> signal + x_e)]."""
        is_read = any(direction in self.law.reads(e) for e in self._first.values())
        state, signal = State.of({direction: sp.S.One}), self.law.case.signal
        if direction != SIGNAL and not is_read:
            return sp.S.Zero

        def shown(form: TokenForm) -> sp.Expr:
            mean = sp.Add(*(c * s for c, s in zip(form, signal, strict=True))) if direction == SIGNAL else sp.S.Zero
            return mean + self.law.gaussian(state, form) if is_read else mean

        return self._against(shown)

    def along_share(self, direction: Direction) -> sp.Expr:
        """E[r . rho_e]."""
        share = self.law.shares[direction]
        return self._against(lambda form: sp.Add(*(c * share(i) for i, c in enumerate(form) if c != 0)))

    def _against(self, shown: Callable[[TokenForm], sp.Expr]) -> sp.Expr:
        """E sum_l r_l shown(unit_l), `shown` linear; tokens of one response together."""
        by_token = self._token_by_token(lambda i: self._first[i] * shown(self._unit(i)))
        if by_token is not None:
            return by_token
        groups: dict[sp.Expr, list[int]] = {}
        for i, e in self._all.items():
            groups.setdefault(e, []).append(i)
        total = sp.Add(
            *(e * shown(tuple(sp.S(int(i in g)) for i in range(self.law.length))) for e, g in groups.items())
        )
        return self.law.pushed(total)

    def _token_by_token(self, entry: Callable[[int], sp.Expr]) -> sp.Expr | None:
        """E sum_l entry(l) by one token of each class; None where that takes too many Gaussian variables."""
        total = sp.S.Zero
        for tokens in self.classes:
            average = self.law.low_dimensional(entry(tokens[0]))
            if average is None:
                return None
            total += len(tokens) * average
        return total

    def square_without(self, shares: Mapping[Direction, sp.Expr]) -> sp.Expr:
        """E|r - sum_e c_e rho_e|^2."""
        first = self._remainder(self._first, shares)
        by_token = self._token_by_token(lambda i: first[i] ** 2)
        if by_token is not None:
            return by_token
        return self.law.pushed(sp.Add(*(e**2 for e in self._remainder(self._all, shares).values())))

    def share_without(self, shares: Mapping[Direction, sp.Expr]) -> Callable[[int], sp.Expr]:
        """r - sum_e c_e rho_e, entry by token, defined in the law."""
        # the entries are needed only where a later step uses the data again
        return lambda i: self.law.define(self._remainder({i: self._all[i]}, shares)[i])

    def _remainder(self, entries: Mapping[int, sp.Expr], shares: Mapping[Direction, sp.Expr]) -> dict[int, sp.Expr]:
        taken = {e: self.law.shares[e] for e in shares}
        return {i: r - sp.Add(*(c * taken[e](i) for e, c in shares.items())) for i, r in entries.items()}

"""Transfers of the algorithms: their own clock says what the replay says."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, pairs_of_nodes

from gapless.encodings.taccl.baselines.cut import cut
from gapless.encodings.taccl.baselines.library import ALGORITHMS, BASES, Baselines
from gapless.encodings.taccl.baselines.transfers import Network, backwards, end_s_of, lay, one_after_the_other, paced
from gapless.encodings.taccl.baselines.variants import Structure, series
from gapless.ir.collective import COLLECTIVES

shapes = [*SHAPES.values(), pairs_of_nodes]
costs = st.tuples(st.integers(0, 30).map(lambda k: k * 1e-7), st.integers(0, 400).map(lambda k: k * 1e-12))


@examples(250)
@given(
    st.sampled_from(shapes), st.integers(2, 7), st.lists(costs, min_size=1, max_size=5),
    st.sampled_from(sorted(COLLECTIVES)), st.integers(1, 10**6), st.data(),
)  # fmt: skip
def test_transfers_end_when_their_replay_ends(shape, ranks, some, name, chunk_bytes, data) -> None:  # type: ignore[no-untyped-def]
    topology = shape(ranks, lambda k: some[k % len(some)])
    collective = COLLECTIVES[name](topology.device_count, 1)
    structure, network = Structure(topology, collective), Network(topology, chunk_bytes)
    algorithm = data.draw(st.sampled_from(sorted(set(ALGORITHMS[name].values()))))
    if algorithm == "hierarchical" and not structure.is_hierarchical:
        return
    forms = list(series(structure, algorithm, BASES.get(name, name)))
    variants = list(data.draw(st.sampled_from(forms)))
    variant = data.draw(st.sampled_from(variants[:3]))
    share, transfers = cut(collective, chunk_bytes, variant.parts, variant.whole), []
    if collective.reduces:
        transfers = backwards(lay(network.reverse, variant.sends(share, True)) or [])
    if not collective.reduces or name == "allreduce":
        transfers = one_after_the_other(transfers, lay(network, variant.sends(share, False)) or [])
    ends_s = end_s_of(network, paced(transfers, variant.pace), share.chunk_bytes)
    assert ends_s == pytest.approx(Baselines(topology, collective).built(name, variant, chunk_bytes).makespan_s)

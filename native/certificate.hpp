// What proves that potentials are feasible: p(a) - p(b) <= l(a, b) on all edges, and so on all ways.
//
// An edge whose rough length exceeds the difference of its rough potentials has room to spare. The others are nearly tight:
// those of the optimal tree and a few more. Rows that hold no more of them than the tree has are proved by counting; in all
// others the nearly tight edges are measured.
#pragma once
#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

// The worst violation on the edges that are not in the tree, at most 0. `rough_p`: p, then -p, in units of the rough copies, or
// null where they do not fit. `in_tree[u]`: the nearly tight edges of the tree that leave u. `all`: the set of all nodes.
template <int V>
double violation(const Network& net, Extent<V>& extent, const double* p, const std::int16_t* rough_p, const int* in_tree,
                 const std::uint64_t* all) {
    constexpr int MANY = 64, BLOCK = 8;
    double worst = 0;
    int at;
    const auto measure = [&](int u) { worst = std::min(worst, net.lengths.least_given(u, p, at) - p[u]); };
    if (!rough_p) {
        for (int u = 0; u < net.n; ++u) measure(u);
        return worst;
    }
    const std::int16_t* minus = rough_p + extent.columns();
    const auto row_of = [&](int u) { return net.rough_out.data() + std::size_t(u) * extent.stride(); };
    for (int from = 0; from < net.n; from += BLOCK) {
        const int end = std::min(from + BLOCK, net.n);
        int expected = 0;
        for (int u = from; u < end; ++u) expected += in_tree[u];
        if (count_at_most<V>(extent, row_of(from), end - from, rough_p, minus + from, Network::ROUGH_ERROR) == expected) continue;
        for (int u = from; u < end; ++u) {
            const Hits<V> hits = at_most<V>(extent, row_of(u), rough_p, minus[u], all, Network::ROUGH_ERROR);
            const int count = count_of(hits);
            if (count == in_tree[u]) continue;
            if (count > MANY) measure(u);
            else each_of(hits, [&](int v) { worst = std::min(worst, net.lengths.given(u, v) - p[u] + p[v]); });
        }
    }
    return worst;
}

}  // namespace geoattn::GEOATTN_ISA

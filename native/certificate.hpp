// What proves that potentials are feasible: p(a) - p(b) <= l(a, b) on all edges, and so on all ways.
//
// An edge whose rough length exceeds the difference of its rough potentials has room to spare. What is left, the edges of the
// optimal tree and a few more, is measured.
#pragma once
#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

// The worst violation, at most 0. `rough_p`: p, then -p, in units of the rough copies, or null where they do not fit. `all`:
// the set of all nodes.
template <int V>
double violation(const Network& net, Extent<V>& extent, const double* p, const std::int16_t* rough_p, const std::uint64_t* all) {
    constexpr int MANY = 64;
    double worst = 0;
    for (int u = 0; u < net.n; ++u) {
        int at;
        if (rough_p) {
            const Hits<V> hits = at_most<V>(extent, net.rough_out.data() + std::size_t(u) * extent.stride(), rough_p,
                                            rough_p[extent.columns() + u], all, Network::ROUGH_ERROR);
            if (count_of(hits) <= MANY) {
                each_of(hits, [&](int v) { worst = std::min(worst, net.lengths.given(u, v) - p[u] + p[v]); });
                continue;
            }
        }
        worst = std::min(worst, net.lengths.least_given(u, p, at) - p[u]);
    }
    return worst;
}

}  // namespace geoattn::GEOATTN_ISA

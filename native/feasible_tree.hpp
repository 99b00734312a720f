// A tree of tight edges with feasible potentials, made from scratch: where the solver in high precision starts.
#pragma once
#include <vector>

#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

struct Link {
    int parent;
    bool falls;  // the potential falls from the parent
};

// A feasible tree from scratch, with root 0: p = 0 is feasible; raise or lower all nodes outside until an edge to them is
// tight.
template <class Real> std::vector<Link> feasible_tree(const Network& net) {
    const int n = net.n;
    std::vector<Link> tree(n, Link{0, false});
    std::vector<Real> p(n, Real(0)), fall(n, Real(INF)), rise(n, Real(INF));  // slack of edges tree -> x and x -> tree, before the shift
    std::vector<int> fall_from(n, 0), rise_to(n, 0);
    std::vector<char> inside(n, 0);
    Real shift = 0;  // of the nodes outside
    for (int joined = 0;;) {
        inside[joined] = 1;
        for (int x = 0; x < n; ++x) {
            if (inside[x]) continue;
            const Real leave = Real(net.lengths.given(joined, x)) - p[joined], enter = Real(net.lengths.given(x, joined)) + p[joined];
            if (leave < fall[x]) fall[x] = leave, fall_from[x] = joined;
            if (enter < rise[x]) rise[x] = enter, rise_to[x] = joined;
        }
        int next = -1;
        bool down = false;
        Real best = INF;
        for (int x = 0; x < n; ++x) {
            if (inside[x]) continue;
            if (fall[x] + shift < best) best = fall[x] + shift, next = x, down = true;
            if (rise[x] - shift < best) best = rise[x] - shift, next = x, down = false;
        }
        if (next < 0) return tree;
        shift += down ? -best : best;
        p[next] = shift;
        tree[next] = {down ? fall_from[next] : rise_to[next], down};
        joined = next;
    }
}

}  // namespace geoattn::GEOATTN_ISA

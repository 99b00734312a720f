// What the two forms of the dual network simplex share (tree.hpp, where the method is explained, and cuts.hpp): how it
// begins, how it goes on, when it ends, and what the potentials prove.
#pragma once
#include <cmath>

#include "metric.hpp"

namespace geoattn::GEOATTN_ISA {

enum class Outcome { optimal, unbounded, stalled, stopped };

// What a pair asks for: the supplies from - to, and `idle` more from the source to the sink.
template <class Mass> struct Supplies {
    const Mass *from, *to;
    int source, sink;
    Mass idle;
};

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
            const Real leave = Real(net.out[joined][x]) - p[joined], enter = Real(net.rows(false)[joined][x]) + p[joined];
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

// Prefer large flows and small sides: fewer pivots, cheaper ones. The exponent is the best of 0.5 to 3 measured.
inline double cut_weight(int size, int n) { return std::pow(std::min(size, n - size), -0.75); }

// The worst violation of p(a) - p(b) <= d(a, b), at most 0.
inline double violation(const Network& net, const double* p) {
    if (!net.directed) return min_gap(net.distances[0], p, net.n, net.stride);
    double worst = 0;
    for (int a = 0; a < net.n; ++a) worst = std::min(worst, min_sum(net.distances[a], p, net.stride) - p[a]);
    return worst;
}

// The pivots of a solver from a feasible tree to an optimal one. The solver names the cut whose flow runs uphill most
// urgently (-1: none does) and pivots on it, which returns the step of the potentials, infinite where nothing crosses the cut.
template <class Solver> class Simplex {
  protected:
    bool restless_ = false;  // among ties: random choices leave every cycle

    Outcome run(const Network& net, double negligible, const Stop& stop) {
        Solver& solver = static_cast<Solver&>(*this);
        restless_ = false;
        random_ = SEED;  // no pair depends on another
        const long limit = 200000 + 2000L * net.n;
        const double tie = 1e-12 * net.reach;  // shorter steps are rounding
        for (long pivots = 1, still = 0;; ++pivots) {
            const int cut = solver.most_urgent();
            if (cut < 0) return Outcome::optimal;
            const double step = solver.pivot(cut);
            if (step == INF) {
                // In a directed graph what rounding left over may have no way to go; it is not mass.
                if (std::fabs(solver.flow_across(cut)) > negligible) return Outcome::unbounded;
                solver.forget(cut);
                continue;
            }
            still = step > tie ? 0 : still + 1;
            restless_ = still > 2 * net.n;
            if (pivots % 1024 == 0) {
                if (pivots > limit) return Outcome::stalled;
                if (stop.asked()) return Outcome::stopped;
            }
        }
    }

    std::uint64_t next_random() {
        random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
        return random_;
    }

    template <class Row, class Number> int any_from(const Row& urgency, int count, Number least) {  // one at random, of at least `least`
        for (int k = int(next_random() % std::uint64_t(count));; k = k + 1 == count ? 0 : k + 1)
            if (urgency[k] >= least) return k;
    }

  private:
    static constexpr std::uint64_t SEED = 0x9e3779b97f4a7c15ull;
    std::uint64_t random_ = SEED;
};

}  // namespace geoattn::GEOATTN_ISA

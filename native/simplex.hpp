// What the two forms of the dual network simplex share (tree_simplex.hpp, where the method is explained, and
// cut_simplex.hpp): how it goes on and when it ends.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

enum class Outcome { optimal, unbounded, stalled, stopped, tied };

// What a pair asks for: the supplies from - to, and `idle` more from the source to the sink. `allowed`: the solver may end as soon
// as its bounds of the cost are no further apart.
template <class Mass> struct Supplies {
    const Mass *from, *to;
    int source, sink;
    Mass idle;
    double allowed = 0;
};

// Prefer large flows and small sides: fewer pivots, cheaper ones. The exponent is the best of 0.5 to 3 measured.
inline double cut_weight(int size, int n) { return std::pow(std::min(size, n - size), -0.75); }

// The highest of n potentials less the lowest.
template <class Row> double span_of(const Row& p, int n) {
    const auto [low, high] = std::minmax_element(p.begin(), p.begin() + n);
    return double(*high - *low);
}

// The pivots of a solver from a feasible tree to an optimal one. The solver names the cut whose flow runs uphill most
// urgently (-1: none does) and pivots on it, which returns the step of the potentials, infinite where nothing crosses the cut.
template <class Solver> class Simplex {
  protected:
    bool restless_ = false;  // among ties: random choices leave every cycle
    bool early_ = false;     // the bounds were near enough before the tree was optimal
    double forgotten_ = 0;   // mass that has nowhere to go: rounding, but it counts as error
    std::int64_t compared_ = 0;  // edges, since a pivot has moved

    static double tie(const Network& net) { return 1e-15 * net.reach; }  // shorter steps are rounding

    // `patience`: so many pivots in a row may move nothing before it gives up, with a tree that is feasible. `leaves_ties`: it also ends
    // when pivots in a row have moved no more than the shortening of lengths explains, and have compared eight edges for each node;
    // it may then be run again. A pivot itself counts as n / 32 edges. A few edges that tie cost little, and the next pivot may move on.
    Outcome run(const Network& net, double negligible, double allowed, const Stop& stop, long patience = NO_END, bool leaves_ties = false) {
        Solver& solver = static_cast<Solver&>(*this);
        restless_ = early_ = false;
        forgotten_ = 0;
        random_ = SEED;  // no pair depends on another
        const long limit = 200000 + 2000L * net.n, many = MANY_PER_NODE * net.n;
        compared_ = 0;
        for (long pivots = 1, still = 0, tied = 0;; ++pivots) {
            const int cut = solver.most_urgent();
            if (cut < 0) return Outcome::optimal;
            if (allowed > 0 && pivots % 8 == 1 && solver.uphill_cost() <= allowed) {
                early_ = true;
                return Outcome::optimal;
            }
            const double step = solver.pivot(cut);
            if (step == INF) {
                // In a directed graph what rounding left over may have no way to go; it is not mass.
                if (std::fabs(solver.flow_across(cut)) > negligible) return Outcome::unbounded;
                forgotten_ += std::fabs(solver.flow_across(cut));
                solver.forget(cut);
                continue;
            }
            still = step > tie(net) ? 0 : still + 1;
            if (still > patience) return Outcome::stalled;
            if (step > TIED * net.reach) tied = compared_ = 0;
            else if (++tied > FEW && leaves_ties && compared_ + tied * net.n / PIVOTS > many) return Outcome::tied;
            restless_ = still > 2 * net.n;
            if (pivots % 256 == 0) {
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

    static constexpr long NO_END = std::numeric_limits<long>::max();

  private:
    static constexpr long FEW = 4, MANY_PER_NODE = 8, PIVOTS = 32;
    static constexpr double TIED = 32 * Lengths::SHARE;  // of the longest distance
    static constexpr std::uint64_t SEED = 0x9e3779b97f4a7c15ull;
    std::uint64_t random_ = SEED;
};

}  // namespace geoattn::GEOATTN_ISA

// What a solver has found of a pair, and how good it has to be.
#pragma once
#include "masses.hpp"
#include "stray.hpp"

namespace geoattn::GEOATTN_ISA {

// A bound of the error of kappa, relative to max(1, |kappa|), above which a pair is solved again in higher precision.
inline constexpr double GOOD_ENOUGH = 1e-11;
// ... and above which there is no value.
inline constexpr double PROMISED = 1e-9;

struct Answer {
    Outcome outcome;
    double w1 = NAN, excess = NAN;  // excess: a bound of w1 - optimum
};

// What a solver has found.
template <class Solver, class Mass>
Answer answer(Solver& solver, Outcome outcome, const Network& net, const Moves& moves, const Supplies<Mass>& supplies, double idle,
              double whole) {
    Answer result{outcome};
    if (result.outcome != Outcome::optimal) return result;
    Mass apart = 0, left = 0;
    for (int v = 0; v < net.n; ++v) {
        apart += std::max<Mass>(supplies.from[v] - supplies.to[v], 0);
        left += supplies.from[v] - supplies.to[v];
    }
    const double moved = idle * whole + as_double(apart);
    result.w1 = solver.cost() / whole;
    // Rounding may have put each class off by a unit, over the diameter at worst; so may what the two measures have outside.
    const double rounding = (moves.classes + std::fabs(as_double(left))) * moves.diameter;
    result.excess = (solver.excess(moved, moves.diameter) + rounding) / whole;
    return result;
}

}  // namespace geoattn::GEOATTN_ISA

// Mass that is rounding.
//
// The rows of a measure are divided by their sums. Each entry is then off by a few parts in 2^53 of itself, and the mass of any set of
// nodes by as little of the whole. Where two measures differ by less than that in a part of a graph that nothing can leave, nothing
// has to leave it.
#pragma once
#include <limits>

namespace geoattn {

constexpr double STRAY = 4 * std::numeric_limits<double>::epsilon();

}  // namespace geoattn

// What crosses the border between the Python binding and the solver: plain pointers, no Python.
//
// The problem. A graph has n nodes and edge lengths l(u, v) >= 0 (infinite: no edge); d is its shortest-path distance.
// Each node x carries a probability measure m_x. For a pair (x, y) the solver returns the transport distance
//     W1(m_x, m_y) = min sum_e l(e) |f(e)| over flows f that take m_x to m_y
//                  = max sum_v (m_x - m_y)(v) p(v) over potentials with p(u) - p(v) <= l(u, v),
// with both optima, so that each value can be proved: the gap between a feasible flow and a feasible potential.
//
// The method (cut_simplex.hpp; tree_simplex.hpp in higher precision). All pairs of a graph ask for the maximum of different
// linear functions over the same polytope of potentials. Its vertices are spanning trees of tight edges. Each pair starts
// from a tree made for it (start_tree.hpp), so that no value depends on the other pairs.
#pragma once
#include <atomic>
#include <cstdint>

#include "stop.hpp"

namespace geoattn {

enum class Status : std::uint8_t {
    solved = 0,
    no_edge = 1,        // set by the caller
    missing_token = 2,  // set by the caller
    unreachable = 3,    // no flow takes one measure to the other
    zero_distance = 4,  // the two nodes coincide: kappa is not defined
    below_floor = 5,    // the convention returns a constant for so short an edge
    stalled = 6,        // the pivot limit was reached: no value
    uncertain = 7,      // lengths or masses span so many orders of magnitude that the certificate is too wide
};

struct Job {
    std::int64_t graphs = 0;
    int n = 0;
    const double* lengths = nullptr;        // (graphs, n, n), infinite where there is no edge
    const double* measures = nullptr;       // (graphs, n, n), rows sum to one
    const std::int32_t* pairs = nullptr;    // (edges, 2), grouped by graph
    const std::int64_t* offsets = nullptr;  // (graphs + 1), pairs of graph g: offsets[g] .. offsets[g + 1]
    bool directed = false;
    bool per_length = false;  // the denominator is the length of the edge, not the distance
    double floor = 0;         // a denominator below it is not solved for
    double tolerance = 0;     // the bounds of kappa may be so far apart; 0: exact
    double idle = 0;          // extra mass on the pair itself: idle * (delta_x - delta_y) is added to m_x - m_y
    int threads = 1;

    double* w1 = nullptr;              // (edges), of m_x - m_y + idle * (delta_x - delta_y)
    double* denominator = nullptr;     // (edges)
    double* distance = nullptr;        // (edges)
    double* gap = nullptr;             // (edges), relative to max(w1, denominator): bounds the error of w1 and so of kappa
    std::uint8_t* status = nullptr;    // (edges)
    std::int32_t* trees = nullptr;     // (edges, n) or null: parents of the optimal tree, for the backward pass
    double* potentials = nullptr;      // (edges, n) or null: optimal potentials

    std::atomic<std::int64_t> done{0};
    Stop stop;
};

// Pull back: weights on dkappa of each pair become gradients of the lengths and of the measures.
struct Backward {
    const Job* job = nullptr;
    const double* upstream = nullptr;  // (edges), dL / dkappa
    double* lengths = nullptr;         // (graphs, n, n), dL / dlength, zero on entry
    double* measures = nullptr;        // (graphs, n, n), dL / dmeasure, zero on entry
};

#define GEOATTN_DECLARE(isa)                                                                     \
    namespace isa {                                                                              \
    void solve(Job& job);                                                                        \
    void pull_back(const Backward& backward);                                                    \
    void shortest_paths(double* distances, int n, bool directed, int threads, const Stop& stop); \
    }
GEOATTN_DECLARE(baseline)
GEOATTN_DECLARE(v3)
#undef GEOATTN_DECLARE

}  // namespace geoattn

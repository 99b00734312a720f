// What crosses the border between the Python binding and the sparse solver: plain pointers, no Python.
//
// The problem. A graph of n nodes has edges of lengths l(u, v) >= 0, kept by node; d is its shortest-path distance. Node x
// carries a probability measure m_x, which is positive on few nodes. For a pair (x, y) the solver returns W1(m_x, m_y) under d.
//
// The method (pairs.hpp). Mass that both measures have stays. What is left is a transport problem between some nodes around x and
// some around y. The pairs of a graph are grouped by their owner, the end with the smaller measure. Distances are found around each
// owner (near_hops.hpp), or by a search from each node of its measure (sweep.hpp, search.hpp) that serves all owners of a round
// (round.hpp) and stops when all that they ask for is known. Problems with distances in edges are solved on sets of nodes
// (hop_transport.hpp), the others by the transportation simplex (transport.hpp). Nothing is of size n^2; a thread keeps a handful of
// arrays of size n.
#pragma once
#include <cstdint>

namespace geoattn::sparse {

// Codes of geoattn.Status.
enum class Status : std::uint8_t { solved = 0, unreachable = 3, zero_distance = 4, below_floor = 5, stalled = 6, uncertain = 7 };

struct Rows {  // of a sparse matrix: entries of row v at start[v] .. start[v + 1], columns ascending
    const std::int64_t* start = nullptr;
    const std::int32_t* column = nullptr;
    const double* value = nullptr;
    std::int64_t count(std::int64_t v) const { return start[v + 1] - start[v]; }
};

struct Job {
    std::int32_t n = 0;
    Rows out, in;    // lengths of the edges that leave a node, and that enter it; the same if undirected
    Rows measures;   // rows sum to one
    Rows seconds;    // the measures of the second node of a pair; the same, but for directed graphs that look back from the first
    std::int64_t count = 0;
    const std::int32_t* pairs = nullptr;   // (count, 2)
    const double* lengths = nullptr;       // (count), of the edge of the pair
    bool directed = false;
    bool near = false;        // each measure lives on its node and the node's neighbours
    bool per_length = false;  // the denominator is the length of the edge, not the distance
    double hop = 0;           // the length of all edges if they have the same one, otherwise 0
    double floor = 0;         // a denominator below it is not solved for
    double idle = 0;          // idle * (delta_x - delta_y) is added to m_x - m_y
    int threads = 1;

    double* w1 = nullptr;           // (count), all of them
    double* denominator = nullptr;
    double* distance = nullptr;
    double* gap = nullptr;          // duality gap relative to max(w1, denominator), rounding included
    std::uint8_t* status = nullptr;

    // Backward pass, or null: dL / dkappa of each pair becomes dL / dlength of each entry of `out` and dL / dmass of each entry
    // of `measures`. Both are zero on entry.
    const double* upstream = nullptr;
    double* to_lengths = nullptr;
    double* to_measures = nullptr;
};

class Progress;  // workers.hpp

#define GEOATTN_DECLARE_SPARSE(isa)           \
    namespace isa {                           \
    void solve(Job& job, Progress& progress); \
    }
GEOATTN_DECLARE_SPARSE(baseline)
GEOATTN_DECLARE_SPARSE(v3)
#undef GEOATTN_DECLARE_SPARSE

}  // namespace geoattn::sparse

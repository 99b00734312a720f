// All shortest paths of an undirected graph, whole rows at a time.
//
// The first or the last edge of a shortest path is at most half as long as the path. So the distances d are right as soon as
//     d(b, s) <= l(b, k) + d(k, s)  for all s and those edges (b, k) with l(b, k) <= max d(b, .) / 2 that no path beats,
// and d is symmetric: by induction over the edges of a path, from whichever end is the shorter one. Few edges are that short.
// A flat head of 2,048 tokens has about 25 of them at each token, a head with an attention sink about 10.
//
// A round lists the short edges, lets rows relax over them until nothing moves, and makes d symmetric. The first round takes
// the nearest neighbours alone, which brings most distances down. Columns do not depend on each other until the end of a
// round: stripes of them fit into the cache and go to threads, and the result does not depend on either. Cost: n^2 times the
// short edges of a node, a few times over; memory: what is returned and the lists.
#pragma once
#include <atomic>
#include <limits>
#include <vector>

#include "lengths.hpp"
#include "threads.hpp"

namespace geoattn::GEOATTN_ISA {

class RowPaths {
  public:
    static constexpr std::uint16_t EDGE = std::numeric_limits<std::uint16_t>::max();

    // `distances` and `between` are n * n entries that it fills. `between`: a node on the path, EDGE where the path is an edge.
    RowPaths(const Lengths& lengths, double* distances, std::uint16_t* between, Crew& crew, const Stop& stop)
        : lengths_(lengths), n_(lengths.size()), d_(distances), between_(between), crew_(crew), stop_(stop), short_(n_) {}

    // False if that takes too many rounds (paths of hundreds of edges): then nothing holds.
    bool find() {
        for_rows([&](int u) {
            for (int v = 0; v < n_; ++v) at(u)[v] = u == v ? 0.0 : lengths_(u, v);
            std::fill_n(between_ + std::size_t(u) * n_, n_, EDGE);
            list_nearest(u);
        });
        for (int round = 0; round < ROUNDS && !stop_.asked(); ++round) {
            std::atomic<bool> changed{round == 0};  // the lists of the first round are not all
            crew_.each((n_ + STRIPE - 1) / STRIPE, [&](int k) {
                if (!stop_.asked() && relax(k * STRIPE, std::min(n_, (k + 1) * STRIPE))) changed = true;
            });
            crew_.each((n_ + STRIPE - 1) / STRIPE, [&](int k) {
                for (int other = 0; other <= k; ++other)
                    if (make_symmetric(k * STRIPE, other * STRIPE)) changed = true;
            });
            if (!changed) return true;
            for_rows([&](int u) { list_short(u); });
        }
        return false;
    }

    // via(u, v): the node before v on the path from u. For each u one row of n.
    void write_ways(std::uint16_t* via) const {
        crew_.each((n_ + STRIPE - 1) / STRIPE, [&](int k) {
            const int from = k * STRIPE, end = std::min(n_, from + STRIPE);
            std::vector<std::uint16_t> before(std::size_t(STRIPE) * n_);
            for (int v = from; v < end; ++v) {
                const std::uint16_t* row = between_ + std::size_t(v) * n_;
                std::uint16_t* own = &before[std::size_t(v - from) * n_];
                for (int u = 0; u < n_; ++u) {
                    int last = u;  // a node between u and v, one between that and v, and so on
                    for (int hops = 0; row[last] != EDGE && hops < n_; ++hops) last = row[last];
                    own[u] = std::uint16_t(last);
                }
            }
            for (int u = 0; u < n_; ++u)
                for (int v = from; v < end; ++v) via[std::size_t(u) * n_ + v] = before[std::size_t(v - from) * n_ + u];
        });
    }

  private:
    static constexpr int NEAREST = 16, STRIPE = 64, ROUNDS = 24, SWEEPS = 1000;
    struct Edge {
        double length;
        int to;
        bool operator<(const Edge& other) const { return length < other.length; }
    };

    const Lengths& lengths_;
    int n_;
    double* d_;
    std::uint16_t* between_;
    Crew& crew_;
    const Stop& stop_;
    std::vector<std::vector<Edge>> short_;  // of each node, by length

    double* at(int u) const { return d_ + std::size_t(u) * n_; }

    template <class Body> void for_rows(Body body) {
        crew_.each_block(n_, [&](int from, int end) {
            for (int u = from; u < end && !stop_.asked(); ++u) body(u);
        });
    }

    void list_nearest(int u) {
        std::vector<Edge> heap;  // the longest first
        for (int v = 0; v < n_; ++v) {
            const double length = at(u)[v];
            if (v == u || !(length < INF) || (int(heap.size()) == NEAREST && !(length < heap.front().length))) continue;
            if (int(heap.size()) == NEAREST) std::pop_heap(heap.begin(), heap.end()), heap.pop_back();
            heap.push_back({length, v});
            std::push_heap(heap.begin(), heap.end());
        }
        std::sort_heap(heap.begin(), heap.end());
        short_[u] = std::move(heap);
    }

    void list_short(int u) {
        const double* row = at(u);
        double most = 0;
        for (int v = 0; v < n_; ++v) most = row[v] > most ? row[v] : most;
        short_[u].clear();
        for (int v = 0; v < n_; ++v)
            if (v != u && row[v] <= 0.5 * most)
                if (const double length = lengths_(u, v); length <= 0.5 * most && length < INF && !(row[v] < length))
                    short_[u].push_back({length, v});
        std::sort(short_[u].begin(), short_[u].end());
    }

    // The columns from .. end of all rows, until nothing moves. A row looks again at those that moved since it looked last.
    bool relax(int from, int end) const {
        std::vector<int> moved(n_, 0), looked(n_, -1);
        bool any = false, again = true;
        for (int time = 0, sweep = 0; again && sweep < SWEEPS; ++sweep) {
            again = false;
            for (int u = 0; u < n_; ++u, ++time) {
                const int last = looked[u];
                looked[u] = time;
                for (const Edge& edge : short_[u]) {
                    if (moved[edge.to] <= last && last >= 0) continue;
                    double* row = at(u) + from;
                    if (!relax_row(row, between_ + std::size_t(u) * n_ + from, edge.length, at(edge.to) + from, edge.to, end - from))
                        continue;
                    moved[u] = time;
                    any = again = true;
                }
            }
        }
        return any;
    }

    bool make_symmetric(int rows, int columns) const {
        bool any = false;
        for (int u = rows; u < std::min(n_, rows + STRIPE); ++u)
            for (int v = columns; v < std::min(u, columns + STRIPE); ++v) {
                double &one = at(u)[v], &other = at(v)[u];
                if (one == other) continue;
                any = true;
                std::uint16_t &way = between_[std::size_t(u) * n_ + v], &back = between_[std::size_t(v) * n_ + u];
                if (one < other) other = one, back = way;
                else one = other, way = back;
            }
        return any;
    }
};

}  // namespace geoattn::GEOATTN_ISA

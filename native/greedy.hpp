// A tree to start from, made for the pair at hand.
//
// The nodes at which two measures differ most decide the potentials. In the order of |supply| each node takes the highest
// potential that the nodes before it allow if it gives mass, the lowest if it takes some:
//     p(v) = min over the takers u before v of p(u) + d(v, u)    or    max over the givers u of p(u) - d(v, u).
// That is feasible in any order, as p(a) - p(b) <= d(a, b) on some nodes extends to all (givers follow from the takers that
// bound them, by the triangle inequality, and so do the nodes on the way). Each node comes with a tight way to an earlier
// one; together these ways are a tree. Pivots that are left, convention grc-0.6, logits of standard deviation 1, 2 and 4:
// 19, 8 and 2 at 65 tokens, 89, 45 and 14 at 197, where the tree of the pair before leaves 63, 37 and 18, and 245, 136 and 57.
// They are the long ones, so that the gain is smaller than it looks. And no pair depends on another where all of them start so.
#pragma once
#include <bit>

#include "metric.hpp"
#include "sixteen.hpp"

namespace geoattn::GEOATTN_ISA {

// V: vectors of sixteen nodes.
template <int V> class Greedy {
  public:
    explicit Greedy(const Network& net)
        : net_(net), placed_(net.n), order_(net.n), sorted_(net.n), key_(16 * V, 32767), rank_(16 * V),
          bounds_{Row<double>(net.stride), Row<double>(net.stride)} {}

    // Fills p and tells of each node, parents before children: visit(k, v, parent, length, outward), k from 1. The root comes
    // with k = 0. Outward: p(v) = p(parent) + length, else minus.
    template <class Visit> void grow(const std::int64_t* supply, double* p, Visit visit) {
        const int n = net_.n, stride = net_.stride;
        std::int32_t* sorted = sorted_.data();
        char* placed = placed_.data();
        sort(supply, sorted);
        std::fill_n(placed, n, 0);
        for (Row<double>& b : bounds_) std::fill(b.begin(), b.end(), INF);
        const auto gives = [&](int v) { return supply[v] > 0; };
        const auto note = [&](int v, bool out) { bounds_[!out][v] = out ? -p[v] : p[v]; };
        count_ = 0;
        const int root = sorted[0];
        p[root] = 0;
        placed[root] = 1;
        visit(count_++, root, root, 0.0, false);
        note(root, gives(root));
        int other = 1;  // the largest on the other side comes second, whatever its size; where all are zero, any one
        while (other < n - 1 && gives(sorted[other]) == gives(root)) ++other;
        std::swap(sorted[1], sorted[other]);
        attach(sorted[1], !gives(root), root, p, visit);
        note(sorted[1], !gives(root));
        // Several at a time: each looks at what was placed before the block, then at the block.
        int block[BLOCK];
        Least bound[BLOCK];
        for (int k = 2; k < n;) {
            int size = 0;
            for (; k < n && size < BLOCK; ++k) {
                block[size] = sorted[k];
                size += !placed[sorted[k]];
            }
            for (int b = 0; b < size; ++b) bound[b] = least_sum(net_.distances[block[b]], bounds_[gives(block[b])].data(), stride);
            for (int b = 0; b < size; ++b) {
                const int v = block[b];
                if (placed[v]) continue;
                const bool out = gives(v);
                const double *d = net_.distances[v], sign = out ? 1.0 : -1.0;
                Least least = bound[b];
                for (int j = 0; j < b; ++j) {
                    const int u = block[j];
                    const double value = gives(u) == out ? INF : d[u] + sign * p[u];
                    least.at = value < least.value ? u : least.at;
                    least.value = value < least.value ? value : least.value;
                }
                attach(v, out, least.at, p, visit);
            }
            for (int b = 0; b < size; ++b) note(block[b], gives(block[b]));
        }
    }

  private:
    static constexpr int BLOCK = 4;
    const Network& net_;
    int count_ = 0;
    std::vector<char> placed_;
    std::vector<std::int32_t> order_, sorted_;
    Row<std::int16_t> key_, rank_;
    Row<double> bounds_[2];  // of takers: -p of the givers; of givers: p of the takers

    // By decreasing |supply|, in classes of four or eight to a factor of two.
    void sort(const std::int64_t* supply, std::int32_t* sorted) {
        constexpr int CLASSES = V <= 8 ? 512 : 128, FINE = V <= 8 ? 20 : 21, NODES = 65536 / CLASSES;
        static_assert(16 * V <= NODES);
        const int n = net_.n;
        std::int32_t largest = 0;
        for (int v = 0; v < n; ++v) {
            sorted[v] = std::bit_cast<std::int32_t>(std::fabs(float(supply[v])));
            largest = std::max(largest, sorted[v]);
        }
        for (int v = 0; v < n; ++v) key_[v] = std::int16_t(std::min((largest - sorted[v]) >> FINE, CLASSES - 1) * NODES + v - 32768);
        ranks<V>(key_.data(), n, rank_.data());
        for (int v = 0; v < n; ++v) sorted[rank_[v]] = v;
    }

    // Along the shortest way to the node that bounds v, as far as it is new
    template <class Visit> void attach(int v, bool out, int by, double* p, Visit visit) {
        const std::uint16_t* step = net_.step.data() + by;
        const std::size_t n = std::size_t(net_.n);
        int a = v, fresh = 0;
        for (; !placed_[a]; a = step[a * n]) order_[fresh++] = a;
        while (fresh) {
            const int b = order_[--fresh];
            const double length = net_.distances[b][a];  // of an essential edge
            placed_[b] = 1;
            p[b] = out ? p[a] + length : p[a] - length;
            visit(count_++, b, a, length, out);
            a = b;
        }
    }
};

}  // namespace geoattn::GEOATTN_ISA

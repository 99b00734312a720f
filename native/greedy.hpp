// A tree to start from, made for the pair at hand.
//
// The nodes at which two measures differ most decide the potentials. In the order of |supply| each node takes the highest
// potential that the nodes before it allow if it gives mass, the lowest if it takes some:
//     p(v) = min over the takers u before v of p(u) + d(v, u)    or    max over the givers u of p(u) - d(v, u).
// That is feasible in any order, as p(a) - p(b) <= d(a, b) on some nodes extends to all (givers follow from the takers that
// bound them, by the triangle inequality, and so do the nodes on the way). Each node comes with a tight way to an earlier
// one; together these ways are a tree. Pivots that are left, convention grc-0.6, logits of standard deviation 1, 2 and 4:
// 19, 8 and 2 at 65 tokens, 89, 45 and 14 at 197. They are the long ones. And no pair depends on another.
//
// Many small nodes may outweigh the few that came before them. So where edges are many, the nodes at which the measures
// differ most are solved first (few.hpp), with what the others move left to the nearest of them, and the tree
// begins with what is optimal there. At 197 tokens and logits of standard deviation 1 that leaves 35 pivots of 87 (grc-0.6)
// and 67 of 166 (markov), after 31 and 49 short ones; at 2, 18 of 45 (grc-0.6), after 11.
#pragma once
#include <bit>

#include "metric.hpp"
#include "sixteen.hpp"

namespace geoattn::GEOATTN_ISA {

// A node of a tree and the edge above it: p(node) = p(parent) + length if outward, else minus.
struct Branch {
    double length;
    std::int32_t node, parent, outward;
};

// V: vectors of sixteen nodes. PART: of a network, with distances for edges.
template <int V, bool PART> class Greedy {
  public:
    explicit Greedy(const Network& net) : net_(net) { std::fill_n(key_, N, 32767); }

    // The order of the nodes for these supplies. The nodes of a part come in order.
    void order(const std::int64_t* supply) {
        const int n = net_.n;
        for (int v = 0; v < n; ++v) gives_[v] = supply[v] > 0;
        if constexpr (PART) {
            for (int v = 0; v < n; ++v) sorted_[v] = rank_[v] = std::int16_t(v);
        } else {
            sort(supply);
            int other = 1;  // the largest on the other side comes second, whatever its size; where all are zero, any one
            while (other < n - 1 && gives_[sorted_[other]] == gives_[sorted_[0]]) ++other;
            std::swap(sorted_[1], sorted_[other]);
            std::swap(rank_[sorted_[1]], rank_[sorted_[other]]);
        }
        gives_[sorted_[1]] = !gives_[sorted_[0]];
    }

    // Begin a tree with its root and `given`, an optimal tree of some nodes without the root: its edges may be any distances.
    void begin(const std::vector<Branch>& given) {
        const int root = sorted_[0], n = net_.n;
        std::fill_n(placed_, N, 0);
        std::fill_n(rough_[0], 2 * N, std::int16_t(32767));
        for (int w = 0; w < WORDS; ++w) waiting_[w] = n >= 64 * (w + 1) ? ~0ull : n > 64 * w ? (1ull << (n - 64 * w)) - 1 : 0;
        first_ = 0;
        p_[root] = 0;
        tree_[0] = {0.0, root, root, 0};
        count_ = 1;
        mark(root);
        note(root, gives_[root]);
        for (const Branch& x : given)
            if (!placed_[x.node]) walk(x.node, x.outward, x.parent);
        for (const Branch& x : given) {  // there a giver may bound a giver
            const int v = x.node, rounded = int(std::lrint(p_[v] * net_.rough_scale));
            rough_[0][v] = std::int16_t(-rounded), rough_[1][v] = std::int16_t(rounded);
        }
    }

    // The next node and what bounds it; false: there is none.
    bool look() {
        if constexpr (V == 5) {  // one beyond the first word, at most: 64 is where that ends
            const int k = std::countr_zero(waiting_[0]);
            if (k == 64 && !waiting_[1]) return false;
            next_ = sorted_[k];
        } else {
            while (first_ < WORDS && !waiting_[first_]) ++first_;
            if (first_ == WORDS) return false;
            next_ = sorted_[64 * first_ + std::countr_zero(waiting_[first_])];
        }
        by_ = nearest_bound(next_);
        return true;
    }

    void take() { walk(next_, gives_[next_], by_); }  // place it, over essential edges
    void tell() { note(next_, gives_[next_]); }       // what it bounds

    int place_of(int k) const { return sorted_[k]; }  // the k-th node of the order
    const Branch* tree() const { return tree_; }  // parents before children, the root first
    int count() const { return count_; }          // of the nodes in the tree
    const double* potentials() const { return p_; }

  private:
    static constexpr int N = 16 * V, WORDS = (V + 3) / 4;
    const Network& net_;
    int count_ = 0, first_ = 0, next_ = 0, by_ = 0;
    std::uint64_t waiting_[WORDS];  // places in the order of the nodes that are to come
    // Arrays of a known size: whoever writes to one need not look up where the others are.
    // What bounds takers, -p of the givers, and what bounds givers, p of the takers, in units of Network::rough; else the largest number.
    alignas(64) std::int16_t rough_[2][N];
    alignas(64) std::int16_t key_[N], rank_[N];
    std::int32_t gives_[N], placed_[N], way_[N], sorted_[N];  // flags too: a char may alias anything
    double p_[N];
    Branch tree_[N];
    static constexpr double SIGN[2] = {-1.0, 1.0};  // of takers and givers: as good as random, so nothing branches on it

    void mark(int v) {
        const unsigned rank = std::uint16_t(rank_[v]);
        placed_[v] = 1;
        waiting_[rank >> 6] &= ~(1ull << (rank & 63));
    }

    void note(int v, int out) {
        put(rough_[1 - out], v, std::int16_t(std::lrint(-SIGN[out] * p_[v] * net_.rough_scale)));
    }

    // The first look is in 16 bits; where it leaves several, lengths and potentials decide.
    int nearest_bound(int v) const {
        const int out = gives_[v];
        // a length and a potential, each off by half a unit, on both sides of a comparison: two units
        const Hits<V> hits = nearest<V>(net_.template between<PART>() + v * N, rough_[out], 2);
        if (hits.single()) [[likely]]
            return hits.first();
        int at = -1;
        double least = INF;
        hits.each([&](int u) {
            const double value = net_.template distance<PART>(v, u) + SIGN[out] * p_[u];
            at = value < least ? u : at;
            least = value < least ? value : least;
        });
        return at;
    }

    // By decreasing |supply|, in classes of four or eight to a factor of two.
    void sort(const std::int64_t* supply) {
        constexpr int CLASSES = V <= 8 ? 512 : 128, FINE = V <= 8 ? 20 : 21, NODES = 65536 / CLASSES;
        static_assert(N <= NODES);
        const int n = net_.n;
        std::int32_t largest = 0, *sorted = sorted_;
        for (int v = 0; v < n; ++v) {
            sorted[v] = std::bit_cast<std::int32_t>(float(std::abs(std::int32_t(supply[v] >> 32))));  // the first 30 bits will do
            largest = std::max(largest, sorted[v]);
        }
        for (int v = 0; v < n; ++v) key_[v] = std::int16_t(std::min((largest - sorted[v]) >> FINE, CLASSES - 1) * NODES + v - 32768);
        ranks<V>(key_, n, rank_);
        for (int v = 0; v < n; ++v) sorted[rank_[v]] = v;
    }

    void place(int v, int out, int parent) {
        const double length = net_.template edge<PART>(v, parent);
        mark(v);
        p_[v] = p_[parent] + SIGN[out] * length;
        tree_[count_++] = {length, v, parent, out};
    }

    // Along the shortest way to the node that bounds v, as far as it is new; its edges are essential.
    void walk(int v, int out, int by) {
        if constexpr (PART) return place(v, out, by);
        const std::uint16_t* step = net_.step.data() + by;
        const std::size_t n = std::size_t(net_.n);
        int a = step[v * n], fresh = 1;
        if (placed_[a]) [[likely]]
            return place(v, out, a);
        for (way_[0] = v; !placed_[a]; a = step[a * n]) way_[fresh++] = a;
        while (fresh) {
            const int b = way_[--fresh];
            place(b, out, a);
            a = b;
        }
    }
};

// Trees that have begun, a node of each in turns: of one alone the processor would wait for every node.
template <int MOST, class GreedyOf> void grow_in_turns(int count, GreedyOf greedy_of) {
    for (bool more = true; more;) {
        bool found[MOST];
        more = false;
        for (int k = 0; k < count; ++k) more |= found[k] = greedy_of(k).look();
        for (int k = 0; k < count; ++k)
            if (found[k]) greedy_of(k).take();
        for (int k = 0; k < count; ++k)
            if (found[k]) greedy_of(k).tell();
    }
}

}  // namespace geoattn::GEOATTN_ISA

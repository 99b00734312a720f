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
// Many small nodes may outweigh the few that came before them. So where edges are many a third of the nodes is solved first
// (Cuts::solve_few), and the tree begins with what is optimal for them. At 197 tokens and logits of standard deviation 1 that
// leaves 45 pivots of 87 (grc-0.6) and 70 of 166 (markov), after 25 and 52 short ones; at 2 (markov) 25 of 88, after 27.
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

struct Least {
    int at;
    double value;
};

// V: vectors of sixteen nodes.
template <int V> class Greedy {
  public:
    explicit Greedy(const Network& net)
        : net_(net), tree_(net.n), gives_(net.n), placed_(net.n), way_(net.n), sorted_(net.n), key_(16 * V, 32767), rank_(16 * V),
          exact_(32 * V), rough_(32 * V) {}

    // The order of the nodes for these supplies.
    void order(const std::int64_t* supply) {
        const int n = net_.n;
        std::int32_t* sorted = sorted_.data();
        sort(supply, sorted);
        for (int v = 0; v < n; ++v) gives_[v] = supply[v] > 0;
        int other = 1;  // the largest on the other side comes second, whatever its size; where all are zero, any one
        while (other < n - 1 && gives_[sorted[other]] == gives_[sorted[0]]) ++other;
        std::swap(sorted[1], sorted[other]);
        gives_[sorted[1]] = !gives_[sorted[0]];
    }

    // The nodes that `grow_few` takes.
    template <class Visit> void few(int count, Visit visit) const {
        for (int k = 0; k < count; ++k) visit(sorted_[k]);
        visit(net_.n - 1);
    }

    // The tree, parents before children, the root first; fills p. `given` is an optimal tree of some nodes to begin with, its
    // root left out: its edges may be any distances.
    const std::vector<Branch>& grow(const std::vector<Branch>& given, double* p) {
        grow_on(given, net_.n, p, [&](int v, int out, int by) { walk(v, out, by, p); });
        return tree_;
    }

    // The same for the first `count` nodes of the order and the last node, with distances for edges.
    const std::vector<Branch>& grow_few(int count, double* p) {
        const auto attach = [&](int v, int out, int by) { place(v, out, by, p); };
        grow_on({}, count, p, attach);
        const int last = net_.n - 1, out = gives_[last];
        if (!placed_[last]) attach(last, out, nearest_bound(last).at);
        return tree_;
    }

    int count() const { return count_; }  // of the nodes in the tree

  private:
    static constexpr int BLOCK = 4;
    const Network& net_;
    int count_ = 0;
    std::vector<Branch> tree_;
    std::vector<std::int32_t> gives_, placed_, way_, sorted_;  // flags too: a char may alias anything
    Row<std::int16_t> key_, rank_;
    // What bounds: for takers, -p of the givers; then, for givers, p of the takers; else infinite. And in units of Network::rough.
    Row<double> exact_;
    Row<std::int16_t> rough_;
    static constexpr double SIGN[2] = {-1.0, 1.0};  // of takers and givers: as good as random, so nothing branches on it

    void bound(int v, int out, const double* p) { exact_[(1 - out) * 16 * V + v] = -SIGN[out] * p[v]; }

    void note(int v, int out, const double* p) {
        bound(v, out, p);
        put(rough_.data() + (1 - out) * 16 * V, v, std::int16_t(std::lrint(-SIGN[out] * p[v] * net_.rough_scale)));
    }

    // The first look is in 16 bits; where it leaves several, lengths and potentials decide.
    Least nearest_bound(int v) const {
        const int from = gives_[v] * 16 * V;
        // a length and a potential, each off by half a unit, on both sides of a comparison: two units
        const Hits<V> hits = nearest<V>(net_.rough_between.data() + v * 16 * V, rough_.data() + from, 2);
        const double *d = net_.distances[v], *bounds = exact_.data() + from;
        Least least{-1, INF};
        if (hits.single()) [[likely]]
            return {hits.first(), d[hits.first()] + bounds[hits.first()]};
        hits.each([&](int u) {
            const double value = d[u] + bounds[u];
            if (value < least.value) least = {u, value};
        });
        return least;
    }

    template <class Attach> void grow_on(const std::vector<Branch>& given, int count, double* p, Attach attach) {
        const int root = sorted_[0];
        std::fill(placed_.begin(), placed_.end(), 0);
        std::fill(exact_.begin(), exact_.end(), INF);
        std::fill(rough_.begin(), rough_.end(), std::int16_t(32767));
        p[root] = 0;
        placed_[root] = 1;
        tree_[0] = {0.0, root, root, 0};
        count_ = 1;
        note(root, gives_[root], p);
        for (const Branch& x : given)
            if (!placed_[x.node]) attach(x.node, x.outward, x.parent);
        for (const Branch& x : given)  // there a giver may bound a giver
            for (const int out : {0, 1}) note(x.node, out, p);
        rest(given.empty() ? 1 : 2, count, p, attach);
    }

    // The nodes `from` to `end` of the order, several at a time: each looks at what was placed before the block, then at the
    // block.
    template <class Attach> void rest(int from, int end, double* p, Attach attach) {
        const std::int32_t *sorted = sorted_.data(), *gives = gives_.data(), *placed = placed_.data();
        int block[BLOCK];
        Least found[BLOCK];
        for (int k = from; k < end;) {
            int size = 0;
            for (const int most = k == 1 ? 1 : BLOCK; k < end && size < most; ++k) {  // the second alone: it bounds the others
                block[size] = sorted[k];
                size += !placed[sorted[k]];
            }
            for (int b = 0; b < size; ++b) found[b] = nearest_bound(block[b]);
            for (int b = 0; b < size; ++b) {
                const int v = block[b], out = gives[v];
                if (placed[v]) continue;
                const double *d = net_.distances[v], *bounds = exact_.data() + out * 16 * V;
                Least least = found[b];
                for (int j = 0; j < b; ++j) {
                    const int u = block[j];
                    const double value = d[u] + bounds[u];
                    least.at = value < least.value ? u : least.at;
                    least.value = value < least.value ? value : least.value;
                }
                attach(v, out, least.at);
                bound(v, out, p);
            }
            for (int b = 0; b < size; ++b) note(block[b], gives[block[b]], p);
        }
    }

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

    void place(int v, int out, int parent, double* p) {
        const double length = net_.distances[v][parent];
        placed_[v] = 1;
        p[v] = p[parent] + SIGN[out] * length;
        tree_[count_++] = {length, v, parent, out};
    }

    // Along the shortest way to the node that bounds v, as far as it is new; its edges are essential.
    void walk(int v, int out, int by, double* p) {
        const std::uint16_t* step = net_.step.data() + by;
        const std::int32_t* placed = placed_.data();
        std::int32_t* way = way_.data();
        const std::size_t n = std::size_t(net_.n);
        int a = v, fresh = 0;
        for (; !placed[a]; a = step[a * n]) way[fresh++] = a;
        while (fresh) {
            const int b = way[--fresh];
            place(b, out, a, p);
            a = b;
        }
    }
};

}  // namespace geoattn::GEOATTN_ISA

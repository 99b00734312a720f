// A tree to start from, made for the pair at hand.
//
// The nodes at which two measures differ most decide the potentials. In the order of |supply| each node takes the highest
// potential that the nodes before it allow if it gives mass, the lowest if it takes some:
//     p(v) = min over the takers u before v of p(u) + d(v, u)    or    max over the givers u of p(u) - d(u, v).
// That is feasible in any order, as p(a) - p(b) <= d(a, b) on some nodes extends to all (givers follow from the takers that
// bound them, by the triangle inequality, and so do the nodes on the way). Each node comes with a tight way to an earlier
// one; together these ways are a tree. In a directed graph a giver may reach no taker so far: it then acts as a taker, or
// waits. No pair depends on another.
//
// Many small nodes may outweigh the few that came before them. So where edges are many, the nodes at which the measures
// differ most are solved first (first_stage.hpp), with what the others move left to the nearest of them, and the tree
// begins with what is optimal there.
#pragma once
#include <utility>

#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

// A node of a tree and the edge above it: p(node) = p(parent) + length if outward, else minus.
struct Branch {
    double length;
    std::int32_t node, parent, outward;
};

// One entry for each column of a row; on the spot where their number is known.
template <int V, class T> struct Columns {
    alignas(64) T at[16 * V];
    explicit Columns(int) {}
};
template <class T> struct Columns<0, T> {
    Row<T> at;
    explicit Columns(int columns) : at(columns) {}
};

// V: vectors of sixteen nodes, 0: any number. PART: of a network, with distances for edges.
template <int V, bool PART> class StartTree {
  public:
    explicit StartTree(const Network& net)
        : net_(net), extent_(net.n, net.stride), waiting_((extent_.columns() + 63) / 64),
          rough_{Bound(extent_.columns()), Bound(extent_.columns())}, bound_{Row<double>(padded(net.n)), Row<double>(padded(net.n))},
          gives_(extent_.columns()), placed_(extent_.columns()), way_(extent_.columns()), sorted_(extent_.columns()),
          rank_(extent_.columns()), p_(extent_.columns()), tree_(extent_.columns()) {}

    // The order of the nodes for these supplies. The nodes of a part come in order.
    void order(const std::int64_t* supply) {
        const int n = net_.n;
        for (int v = 0; v < n; ++v) gives_.at[v] = supply[v] > 0;
        if constexpr (PART) {
            for (int v = 0; v < n; ++v) sorted_.at[v] = rank_.at[v] = v;
        } else {
            sort(supply);
            int other = 1;  // the largest on the other side comes second, whatever its size; where all are zero, any one
            while (other < n - 1 && gives_.at[sorted_.at[other]] == gives_.at[sorted_.at[0]]) ++other;
            std::swap(sorted_.at[1], sorted_.at[other]);
            std::swap(rank_.at[sorted_.at[1]], rank_.at[sorted_.at[other]]);
        }
        gives_.at[sorted_.at[1]] = !gives_.at[sorted_.at[0]];
    }

    // Begin a tree with its root and `given`, an optimal tree of some nodes without the root: its edges may be any distances.
    // `bound`: by distances from givers to takers alone (cut_simplex.hpp). Nodes that do neither then hang on the root.
    void begin(const std::vector<Branch>& given, const std::int64_t* bound = nullptr) {
        const int root = sorted_.at[0], n = net_.n;
        direct_ = PART || bound;
        failed_ = false;
        std::fill_n(&placed_.at[0], n, 0);
        for (int out : {0, 1}) {
            std::fill_n(&rough_[out].at[0], extent_.columns(), NOTHING);
            std::fill(bound_[out].begin(), bound_[out].end(), INF);
        }
        for (int w = 0; w < int(waiting_.size()); ++w)
            waiting_[w] = n >= 64 * (w + 1) ? ~0ull : n > 64 * w ? (1ull << (n - 64 * w)) - 1 : 0;
        first_ = 0;
        in_range_ = true;
        p_.at[root] = 0;
        tree_.at[0] = {0.0, root, root, 0};
        count_ = 1;
        mark(root);
        if (!bound || gives_.at[root]) note(root, 1);
        if (!bound || !gives_.at[root]) note(root, 0);
        for (const Branch& x : given)
            if (!placed_.at[x.node]) walk(x.node, x.outward, x.parent);
        for (const Branch& x : given) {
            if (!bound) note(x.node, 0), note(x.node, 1);  // there a giver may bound a giver
            else if (bound[x.node]) note(x.node, gives_.at[x.node]);
        }
        if (!bound) return;
        for (int v = 0; v < n; ++v)
            if (!bound[v] && !placed_.at[v]) mark(v), p_.at[v] = p_.at[root], tree_.at[count_++] = {0.0, v, root, 0};
    }

    bool whole() const { return count_ == net_.n; }  // whether all nodes are in the tree

    // The next node and what bounds it; false: there is none.
    bool look() {
        while (first_ < int(waiting_.size()) && !waiting_[first_]) ++first_;
        if (first_ == int(waiting_.size())) return false;
        next_ = sorted_.at[64 * first_ + std::countr_zero(waiting_[first_])];
        by_ = nearest_bound(next_);
        return by_ >= 0 || (!failed_ && look_further());
    }

    void take() { walk(next_, gives_.at[next_], by_); }  // place it, over essential edges
    void tell() { note(next_, gives_.at[next_]); }       // what it bounds

    int place_of(int k) const { return sorted_.at[k]; }  // the k-th node of the order
    const Branch* tree() const { return &tree_.at[0]; }  // parents before children, the root first
    int count() const { return count_; }                 // of the nodes in the tree
    const double* potentials() const { return &p_.at[0]; }

  private:
    using Bound = Columns<V, std::int16_t>;
    static constexpr double SIGN[2] = {-1.0, 1.0};  // of takers and givers: as good as random, so nothing branches on it
    static constexpr int MANY = 24;
    static constexpr std::int16_t NOTHING = 32767;

    const Network& net_;
    Extent<V> extent_;
    int count_ = 0, first_ = 0, next_ = 0, by_ = 0;
    bool in_range_ = true;  // of the rough copies
    bool direct_ = PART, failed_ = false;  // edges are distances; a node found no place among them
    std::vector<std::uint64_t> waiting_;  // places in the order of the nodes that are to come
    // What bounds takers, -p of the givers, and what bounds givers, p of the takers: in units of the rough copies, else NOTHING,
    // and as they are, else infinite.
    Bound rough_[2];
    Row<double> bound_[2];
    Columns<V, std::int32_t> gives_, placed_, way_, sorted_, rank_;  // flags too: a char may alias anything
    Columns<V, double> p_;
    Columns<V, Branch> tree_;

    void mark(int v) {
        const unsigned rank = unsigned(rank_.at[v]);
        placed_.at[v] = 1;
        waiting_[rank >> 6] &= ~(1ull << (rank & 63));
    }

    void note(int v, int out) {
        const double value = -SIGN[out] * p_.at[v], rough = value * net_.rough_scale;
        in_range_ &= std::fabs(rough) <= Network::ROUGH_MOST;
        bound_[1 - out][v] = value;
        put(&rough_[1 - out].at[0], unsigned(v), std::int16_t(std::lrint(std::clamp(rough, -32000.0, 32000.0))));
    }

    double distance(int v, int out, int u) const {  // along the way that bounds v
        return out ? net_.template reach_of<PART>(v, u) : net_.template reach_of<PART>(u, v);
    }

    // The first look is in 16 bits; where it leaves several, lengths and potentials decide. -1: nothing bounds it.
    [[gnu::always_inline]] int nearest_bound(int v) {
        const int out = gives_.at[v];
        if (!in_range_) return exact_bound(v, out);
        int least;
        // a length and a potential, each off by half a unit, on both sides of a comparison: two units
        const Hits<V> hits =
            nearest<V>(extent_, net_.template between<PART>(out) + std::size_t(v) * extent_.stride(), &rough_[out].at[0], 2, least);
        const int count = count_of(hits);
        if (least >= Network::ROUGH_NONE || count > MANY) [[unlikely]]
            return exact_bound(v, out);
        if (count == 1) [[likely]]
            return first_of(hits);
        int at = -1;
        double low = INF;
        each_of(hits, [&](int u) {
            const double value = distance(v, out, u) + SIGN[out] * p_.at[u];
            at = value < low ? u : at;
            low = value < low ? value : low;
        });
        return at;
    }

    [[gnu::noinline]] int exact_bound(int v, int out) const {
        int at = -1;
        if constexpr (!PART)
            if (!net_.stored.empty() && (out || !net_.directed)) {
                least_sum(&net_.stored[std::size_t(v) * net_.n], bound_[out].data(), net_.n, at);
                return at;
            }
        double low = INF;
        for (int u = 0; u < net_.n; ++u) {
            if (!(bound_[out][u] < INF)) continue;
            const double value = distance(v, out, u) + bound_[out][u];
            if (value < low) low = value, at = u;
        }
        return at;
    }

    // Of a directed graph: in the other role, or another node.
    [[gnu::noinline]] bool look_further() {
        if (!PART && direct_) return !(failed_ = true);
        for (int w = first_; w < int(waiting_.size()); ++w)
            for (std::uint64_t left = waiting_[w]; left; left &= left - 1) {
                next_ = sorted_.at[64 * w + std::countr_zero(left)];
                for (int role = 0; role < 2; ++role) {
                    by_ = nearest_bound(next_);
                    if (by_ >= 0) return true;
                    gives_.at[next_] = !gives_.at[next_];
                }
            }
        return false;
    }

    // By decreasing |supply|, in classes of eight to a factor of two.
    void sort(const std::int64_t* supply) {
        constexpr int CLASSES = 256, FINE = 20;
        const int n = net_.n;
        std::int32_t largest = 0, start[CLASSES] = {}, *size = &way_.at[0], *rank = &rank_.at[0], *sorted = &sorted_.at[0];
        std::uint64_t some[CLASSES / 64] = {};  // the classes that have members
        for (int v = 0; v < n; ++v) {
            size[v] = std::bit_cast<std::int32_t>(float(std::abs(std::int32_t(supply[v] >> 32))));  // the first 30 bits will do
            largest = std::max(largest, size[v]);
        }
        for (int v = 0; v < n; ++v) {
            const int c = std::min((largest - size[v]) >> FINE, CLASSES - 1);
            size[v] = c;
            ++start[c];
            some[c >> 6] |= 1ull << (c & 63);
        }
        int below = 0;
        for (int w = 0; w < CLASSES / 64; ++w)
            for (std::uint64_t left = some[w]; left; left &= left - 1) {
                std::int32_t& first = start[64 * w + std::countr_zero(left)];
                below += std::exchange(first, below);
            }
        for (int v = 0; v < n; ++v) {
            const int place = start[size[v]]++;
            rank[v] = place;
            sorted[place] = v;
        }
    }

    [[gnu::always_inline]] void place(int v, int out, int parent) {
        const int tail = out ? v : parent, head = out ? parent : v;
        const double length = direct_ ? net_.template reach_of<PART>(tail, head) : net_.template link<PART>(tail, head);
        mark(v);
        p_.at[v] = p_.at[parent] + SIGN[out] * length;
        tree_.at[count_++] = {length, v, parent, out};
    }

    // Along the shortest way to the node that bounds v, as far as it is new; its edges are essential. Mostly the way has one new edge.
    [[gnu::always_inline]] void walk(int v, int out, int by) {
        int parent = by;
        if (!direct_ && !(out && net_.directed)) parent = net_.via[std::size_t(by) * net_.n + v];
        if (direct_ || (!(out && net_.directed) && placed_.at[parent])) [[likely]]
            return place(v, out, parent);
        walk_far(v, out, by);
    }

    [[gnu::noinline]] void walk_far(int v, int out, int by) {
        std::int32_t* way = &way_.at[0];
        const std::size_t n = std::size_t(net_.n);
        int fresh = 1, a;
        if (out && net_.directed) {  // the way is known from its end
            int length = 0;
            for (int u = by; u != v; u = net_.via[v * n + u]) way[length++] = u;
            std::reverse(way, way + length);
            int k = 0;
            while (!placed_.at[way[k]]) ++k;
            a = way[k];
            std::copy_backward(way, way + k, way + k + 1);
            way[0] = v;
            fresh = k + 1;
        } else {
            const std::uint16_t* before = net_.via.data() + by * n;
            for (way[0] = v, a = before[v]; !placed_.at[a]; a = before[a]) way[fresh++] = a;
        }
        while (fresh) {
            const int b = way[--fresh];
            place(b, out, a);
            a = b;
        }
    }
};

// Trees that have begun, a node of each in turns: of one alone the processor would wait for every node.
template <int MOST, class TreeOf> void grow_in_turns(int count, TreeOf tree_of) {
    for (bool more = true; more;) {
        bool found[MOST];
        more = false;
        for (int k = 0; k < count; ++k) more |= found[k] = tree_of(k).look();
        for (int k = 0; k < count; ++k)
            if (found[k]) tree_of(k).take();
        for (int k = 0; k < count; ++k)
            if (found[k]) tree_of(k).tell();
    }
}

}  // namespace geoattn::GEOATTN_ISA

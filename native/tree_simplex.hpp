// Dual network simplex on a spanning tree, in high precision: for the few pairs whose lengths or masses span so many orders
// of magnitude that cut_simplex.hpp cannot prove its value.
//
// A tree holds tight edges: p(v) - p(parent) = +l or -l, and p is feasible everywhere. Cutting the edge above v leaves
// the subtree C of v; the flow that the supplies force through the edge is B(v), the sum of the supplies in C. The tree
// is optimal when each B(v) runs down the potential. If one runs uphill, shifting p on C in the direction of B(v) raises
// the dual value; the first edge across the cut that becomes tight replaces the one above v (a pivot).
//
// Masses are integers (the measures are rounded once, to 2^-125), so flows carry no rounding error and a sign is a fact.
// Subtrees are bit sets, so that moving one costs a few words per ancestor. The search across the cut runs over the rows of
// its smaller side, first in float vectors, then exactly on what is left.
#pragma once
#include <cstring>

#include "feasible_tree.hpp"
#include "simplex.hpp"

namespace geoattn::GEOATTN_ISA {

__extension__ typedef __int128 Wide;

inline double as_double(std::int64_t x) { return double(x); }
inline double as_double(Wide x) {  // the compiler's own conversion is a slow library call
    const bool negative = x < 0;
    __extension__ typedef unsigned __int128 Unsigned;
    const Unsigned size = negative ? -Unsigned(x) : Unsigned(x);
    const double value = double(std::uint64_t(size >> 64)) * 0x1p64 + double(std::uint64_t(size));
    return negative ? -value : value;
}

#if defined(__SIZEOF_FLOAT128__)
__extension__ typedef __float128 Quad;
#else
typedef long double Quad;
#endif

// Real: the potentials.
template <class Mass, class Real> class TreeSimplex : Simplex<TreeSimplex<Mass, Real>> {
    friend class Simplex<TreeSimplex>;

  public:
    explicit TreeSimplex(const Network& network)
        : net_(network), n_(network.n), stride_(padded(n_)), words_((n_ + 63) / 64), node_(n_), subtree_(std::size_t(n_) * words_, 0),
          p_(stride_, Real(0)), coarse_p_(stride_, 0.0f), reach_(stride_), urgency_(stride_, 0.0), weight_(n_ + 1, 0.0), order_(n_),
          count_(n_ + 2), side_(n_), columns_(n_), side_p_(n_), coarse_side_p_(n_), cut_(words_), side_set_(words_), rest_(words_) {
        for (int size = 1; size < n_; ++size) weight_[size] = cut_weight(size, n_);
        // In a directed graph only the tree bounds the potentials.
        const double span = net_.directed ? net_.reach * n_ : net_.reach;
        scale_ = span > 1e-300 ? 1 / span : 1;
        copy_lengths();
        grow();
    }

    Outcome solve(const Supplies<Mass>& s, int, double negligible, const Stop& stop) {
        reroot(s.source);
        load(s.from, s.to, s.source, s.sink, s.idle);
        return this->run(net_, negligible, 0.0, stop);
    }

    // Sum of |flow| * length, in units of mass. From here on the potentials are those of the given lengths.
    double cost() {
        double sum = 0;
        sort_nodes();
        p_[root_] = 0;
        for (int k = 1; k < n_; ++k) {
            const int v = order_[k];
            Node& x = node_[v];
            x.length = x.uphill > 0 ? net_.lengths.given(x.parent, v) : net_.lengths.given(v, x.parent);
            p_[v] = p_[x.parent] - Real(x.uphill) * Real(x.length);
            sum += std::fabs(as_double(x.flow)) * x.length;
        }
        return sum;
    }

    // Upper bound of cost() - optimum, in the same units, from the potentials alone: what the tree edges lack to be tight, plus
    // the mass that moves times the worst violation on an edge, on the longest way. No mass moves over an edge that is longer
    // than `longest`.
    double excess(double moved_mass, double longest) const {
        double slack = 0, worst = 0;
        for (const Node& x : node_) {
            const Real climb = Real(-x.uphill) * (p_[&x - node_.data()] - p_[x.parent]);
            slack += std::fabs(as_double(x.flow)) * std::fabs(double(Real(x.length) - climb));
        }
        for (int a = 0; a < n_; ++a)
            for (int b = 0; b < n_; ++b)
                if (a != b && net_.lengths.given(a, b) <= longest)
                    worst = std::min(worst, double(Real(net_.lengths.given(a, b)) + p_[b] - p_[a]));
        for (const Node& x : node_)
            if (as_double(x.flow) * x.uphill > 0) slack += 2 * std::fabs(as_double(x.flow)) * x.length;  // what was forgotten
        const double stray = this->forgotten_ > 0 ? this->forgotten_ * span_of(p_, n_) : 0.0;
        return slack + stray - worst * (n_ - 1) * moved_mass;
    }

    double potential(int v) const { return double(p_[v]); }

    template <class Visit> void branches(Visit visit) const {  // node, parent, whether the potential falls towards the node
        for (int v = 0; v < n_; ++v) visit(v, node_[v].parent, node_[v].uphill > 0);
    }

  private:
    struct alignas(32) Node {
        Mass flow;      // B(v), from v to its parent
        double length;  // of the edge above
        double uphill;  // -1: p(v) = p(parent) + length, so a negative flow is uphill; +1: the reverse
        std::int32_t parent, size;
    };

    const Network& net_;
    int n_, stride_, words_, root_ = 0;
    Row<Node> node_;
    Row<std::uint64_t> subtree_;
    Row<Real> p_;
    Row<float> coarse_p_, reach_;
    double scale_ = 1;     // of the rounded copies: floats end at 1e38
    Row<float> coarse_[2];  // lengths towards a node, and from it
    Row<double> urgency_;  // uphill flow, weighted by the size of the smaller side of the cut; 0 when downhill
    Row<double> weight_;
    std::vector<int> order_, count_, side_, columns_;
    std::vector<Real> side_p_;
    std::vector<float> coarse_side_p_;
    std::vector<std::uint64_t> cut_, side_set_, rest_;

    float coarse(Real p) const { return float(double(p) * scale_); }
    std::uint64_t* set(int v) { return &subtree_[std::size_t(v) * words_]; }

    void price(int v, const Node& x) {
        const double uphill = as_double(x.flow) * x.uphill;
        urgency_[v] = (uphill > 0 ? uphill : 0) * weight_[x.size];
    }

    void copy_lengths() {
        for (bool outward : {true, false}) {
            if (!outward && !net_.directed) break;
            Row<float>& copy = coarse_[outward];
            copy.assign(std::size_t(n_) * stride_, float(INF));
            for (int u = 0; u < n_; ++u)
                for (int v = 0; v < n_; ++v)
                    if (u != v)
                        copy[std::size_t(u) * stride_ + v] =
                            float((outward ? net_.lengths.given(u, v) : net_.lengths.given(v, u)) * scale_);
        }
    }

    // The least slack of the edges that cross the cut between `side` (listed in side_) and the rest, and where it is. A
    // first look in float leaves a column or two (more when there are ties); these are searched exactly.
    Real search(bool outward, const std::uint64_t* side, int count, int& row, int& column) {
        // In units of `reach` no term exceeds 3: rounding of length, two potentials and two sums, each at most 3 * 2^-24.
        constexpr float COARSE = 2 * 32 * 0x1p-24f;
        const double sign = outward ? 1.0 : -1.0;
        const float low = search_cut(coarse_[outward || !net_.directed].data(), stride_, side_.data(), coarse_side_p_.data(), count,
                                     coarse_p_.data(), outward ? 1.0f : -1.0f, side, reach_.data());
        const int found = low < INF ? at_most(reach_.data(), n_, low + COARSE, columns_.data(), n_) : 0;
        std::uint64_t ties = 0;
        Real best = INF;
        for (int f = 0; f < found; ++f) {
            const int c = columns_[f];
            const Real other = Real(sign) * p_[c];
            for (int k = 0; k < count; ++k) {
                const Real slack = (Real(outward ? net_.lengths.given(side_[k], c) : net_.lengths.given(c, side_[k])) - side_p_[k]) + other;
                bool better = slack < best;
                if (this->restless_) {  // among ties each edge has the same chance
                    ties = better ? 1 : ties + (slack == best);
                    better = better || (slack == best && this->next_random() % ties == 0);
                }
                best = better ? slack : best;
                row = better ? side_[k] : row;
                column = better ? c : column;
            }
        }
        return best;
    }

    void grow() {
        const std::vector<Link> tree = feasible_tree<Real>(net_);
        root_ = 0;
        node_[0] = {0, 0.0, 0.0, 0, 1};
        for (int v = 1; v < n_; ++v) {
            const auto [parent, falls] = tree[v];
            node_[v] = {0, falls ? net_.lengths.given(parent, v) : net_.lengths.given(v, parent), falls ? 1.0 : -1.0, parent, 1};
        }
        for (int v = 0; v < n_; ++v) {
            for (int a = v;; a = node_[a].parent) {
                set(a)[v >> 6] |= 1ull << (v & 63);
                node_[a].size += a != v;
                if (a == 0) break;
            }
        }
    }

    void reroot(int root) {  // the potentials are then exact near `root`, where the mass is
        if (root == root_) return;
        const int words = words_;
        const std::uint64_t* all = set(root_);
        std::copy(all, all + words, cut_.begin());
        std::copy(set(root), set(root) + words, rest_.begin());
        std::copy(cut_.begin(), cut_.end(), set(root));
        Node below = node_[root];
        for (int v = root; v != root_;) {
            const int above = below.parent;
            const Node old = node_[above];
            std::uint64_t* s = set(above);
            for (int w = 0; w < words; ++w) {
                const std::uint64_t before = s[w];
                s[w] = cut_[w] & ~rest_[w];
                rest_[w] = before;
            }
            node_[above] = {0, below.length, -below.uphill, v, n_ - below.size};
            v = above;
            below = old;
        }
        root_ = root;
        node_[root] = {0, 0.0, 0.0, root, n_};
    }

    void sort_nodes() {  // parents before children: by size of the subtree
        std::fill(count_.begin(), count_.end(), 0);
        for (const Node& x : node_) ++count_[x.size];
        int place = 0;
        for (int size = n_; size >= 1; --size) {
            const int c = count_[size];
            count_[size] = place;
            place += c;
        }
        for (int v = 0; v < n_; ++v) order_[count_[node_[v].size]++] = v;
    }

    void load(const Mass* from, const Mass* to, int source, int sink, Mass idle) {
        for (int v = 0; v < n_; ++v) node_[v].flow = from[v] - to[v];
        node_[source].flow += idle;
        node_[sink].flow -= idle;
        sort_nodes();
        for (int k = n_ - 1; k > 0; --k) {
            const int v = order_[k];
            const Node& x = node_[v];
            node_[x.parent].flow += x.flow;
            price(v, x);
        }
        node_[root_].flow = 0;
        urgency_[root_] = 0;
        p_[root_] = coarse_p_[root_] = 0;
        for (int k = 1; k < n_; ++k) {
            const int v = order_[k];
            const Node& x = node_[v];
            coarse_p_[v] = coarse(p_[v] = p_[x.parent] - Real(x.uphill) * Real(x.length));
        }
    }

    int most_urgent() {
        const int v = argmax_positive(urgency_.data(), stride_);
        return v >= 0 && this->restless_ ? this->any_from(urgency_, n_, std::numeric_limits<double>::min()) : v;
    }

    void forget(int v) { urgency_[v] = 0; }

    double uphill_cost() const { return INF; }  // it always goes on to the optimum
    double flow_across(int v) const { return as_double(node_[v].flow); }

    double pivot(const int v) {
        const int words = words_;
        const Node top = node_[v];
        const Mass supply = top.flow;
        const bool rise = supply > 0;
        const bool inside = top.size * 2 <= n_;  // search from the inside of the cut, or from the outside
        const bool outward = inside == rise;
        std::uint64_t *cut = cut_.data(), *side = side_set_.data(), *rest = rest_.data();
        const double sign = outward ? 1.0 : -1.0;
        int count = 0;
        const std::uint64_t *within = set(v), *all = set(root_);
        for (int w = 0; w < words; ++w) {
            cut[w] = within[w];
            side[w] = inside ? within[w] : all[w] & ~within[w];
            for (std::uint64_t left = side[w]; left; left &= left - 1) {
                const int r = w * 64 + __builtin_ctzll(left);
                side_[count] = r;
                side_p_[count] = Real(sign) * p_[r];
                coarse_side_p_[count] = coarse(side_p_[count]);
                ++count;
            }
        }
        int row = -1, column = -1;
        Real step = search(outward, side, count, row, column);
        if (!(step < Real(INF))) return INF;
        const double length = outward ? net_.lengths.given(row, column) : net_.lengths.given(column, row);
        step = step < 0 ? Real(0) : step;
        for (int k = 0; k < count; ++k) coarse_p_[side_[k]] = coarse(p_[side_[k]] += Real(sign) * step);
        const int joint = inside ? row : column, anchor = inside ? column : row;  // new edge: joint in C, anchor outside
        const double uphill = rise ? -1.0 : 1.0;
        if (joint == v && anchor == top.parent) {  // the same edge, now in the other direction
            node_[v].length = length;
            node_[v].uphill = uphill;
            urgency_[v] = 0;
            return double(step);
        }
        // The supply of C leaves the ancestors of v and joins those of the anchor, up to where they meet.
        const std::uint64_t bit = 1ull << (anchor & 63);
        int a = top.parent;
        for (;;) {
            std::uint64_t* s = set(a);
            if (s[anchor >> 6] & bit) break;
            Node& x = node_[a];
            for (int w = 0; w < words; ++w) s[w] &= ~cut[w];
            x.flow -= supply;
            x.size -= top.size;
            price(a, x);
            a = x.parent;
        }
        for (int b = anchor; b != a;) {
            std::uint64_t* s = set(b);
            Node& x = node_[b];
            for (int w = 0; w < words; ++w) s[w] |= cut[w];
            x.flow += supply;
            x.size += top.size;
            price(b, x);
            b = x.parent;
        }
        // Turn the path from the joint up to v upside down.
        Node below = node_[joint];
        std::uint64_t* s = set(joint);
        for (int w = 0; w < words; ++w) rest[w] = s[w], s[w] = cut[w];
        for (int b = joint; b != v;) {
            const int above = below.parent;
            const Node old = node_[above];
            s = set(above);
            for (int w = 0; w < words; ++w) {
                const std::uint64_t before = s[w];
                s[w] = cut[w] & ~rest[w];
                rest[w] = before;
            }
            node_[above] = {supply - below.flow, below.length, -below.uphill, b, top.size - below.size};
            price(above, node_[above]);
            b = above;
            below = old;
        }
        node_[joint] = {supply, length, uphill, anchor, top.size};
        urgency_[joint] = 0;
        return double(step);
    }
};

}  // namespace geoattn::GEOATTN_ISA

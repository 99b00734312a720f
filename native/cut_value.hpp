// The value of a tree of the simplex on cuts by the given lengths, what it may be off by, and the order of its edges.
#pragma once
#include <utility>

#include "cut_simplex.hpp"

namespace geoattn::GEOATTN_ISA {

// Sum of flow * length, in units of mass. From here on the potentials are those of the given lengths.
template <int V, bool PART> double CutSimplex<V, PART>::cost() {
    if (proved_) return cost_;
    long double sum = 0;  // sums of a thousand terms would round more than the gap allows
    double slack = 0, violation = 0, *p = p_.data();
    p[source_] = 0;
    sort_slots();
    const std::uint64_t* away = away_.data();
    const std::int64_t* flows = flow_.data();
    for (int k = last_ - 1; k >= 0; --k) {
        const int g = order_[k];
        Edge& x = edge_[g];
        const bool out = has(away, g);
        const double length = x.length = net_.lengths.given(x.tail(), x.head());
        p[x.end[!out]] = p[x.end[out]] + SIGN[out] * length;
        const double flow = std::fabs(double(flows[g])), off = length - (p[x.tail()] - p[x.head()]);
        double way = length;
        if (flows[g] < 0) [[unlikely]] {  // the solver ended early, or it is mass that has nowhere to go
            if (this->early_) way = way_uphill(x);
            slack += flow * (length + way);
        }
        sum += static_cast<long double>(flow) * way;
        slack += flow * std::fabs(off);
        violation = off < violation ? off : violation;
    }
    slack_ = slack, tree_violation_ = violation;
    return double(sum);
}

// Upper bound of cost() - optimum, in units of mass: what the edges of the tree lack to be tight, plus what the potentials
// lack to be feasible, on the longest way.
template <int V, bool PART> double CutSimplex<V, PART>::excess(double moved_mass, double) {
    if (proved_) return slack_ - tree_violation_ * moved_mass;  // each unit goes once, from a giver to a taker
    if (in_range_) round_potentials();
    if (in_range_) count_tree_edges();
    const double worst = violation(net_, extent_, p_.data(), in_range_ ? rough_p_.data() : nullptr, count_.data(), all_.data());
    const double stray = this->forgotten_ > 0 ? this->forgotten_ * span_of(p_, n_) : 0.0;
    return slack_ + stray - std::min(worst, tree_violation_) * net_.most_hops * moved_mass;
}

// Fills order_ with the slots, leaves first as seen from the source, far_ with the sizes of their far sides, and away_ with those
// that have the tail away from the source.
template <int V, bool PART> void CutSimplex<V, PART>::sort_slots() {
    int *far = far_.data(), *count = count_.data();
    const int n = n_, slots = last_;
    const std::uint64_t *own = set_of(slots_of_, source_), *at_last = set_of(slots_of_, last_), *tails = tails_.data();
    std::uint64_t* away = away_.data();
    auto with_source = scratch(0);
    each_word(extent_, [&](int w) {
        with_source.word[w] = own[w] ^ at_last[w];
        away[w] = tails[w] ^ own[w] ^ at_last[w];
    });
    std::fill_n(count, n, 0);
    for (int g = 0; g < slots; ++g) {
        const int size = size_of(set_of(side_of_, g), extent_);
        far[g] = has(with_source.data(), g) ? n - size : size;
        ++count[far[g]];
    }
    for (int size = 1, place = 0; size < n; ++size) place += std::exchange(count[size], place);
    std::int32_t* order = order_.data();
    for (int g = 0; g < slots; ++g) order[count[far[g]]++] = g;
}

// The slots with the tail away from the source.
template <int V, bool PART> Row<std::uint64_t> CutSimplex<V, PART>::tails_away() const {
    Row<std::uint64_t> away = tails_;
    flip_all(away.data(), set_of(slots_of_, source_), extent_);
    flip_all(away.data(), set_of(slots_of_, last_), extent_);
    return away;
}

// Edges of the tree that a first look finds nearly tight, by tail.
template <int V, bool PART> void CutSimplex<V, PART>::count_tree_edges() {
    int* count = count_.data();
    std::fill_n(count, n_, 0);
    const std::int16_t *plus = rough_p_.data(), *minus = plus + extent_.columns(), *lengths = net_.rough_out.data();
    for (const Edge& x : edge_) {
        const int length = lengths[x.tail() * std::size_t(extent_.stride()) + x.head()];
        count[x.tail()] += length + plus[x.head()] + minus[x.tail()] <= Network::ROUGH_ERROR;
    }
}

// What the flow of an edge that runs uphill costs: against the edge where the graph is undirected, else over a shortest way.
template <int V, bool PART> double CutSimplex<V, PART>::way_uphill(const Edge& x) const {
    if constexpr (!PART)
        if (net_.directed) return net_.given_distance(x.head(), x.tail());
    return net_.directed ? net_.template reach_of<PART>(x.head(), x.tail()) : x.length;
}

// How far the two bounds of a tree are apart, in units of mass: potentials are feasible, so the flows with their signs bound
// the optimum from below; with all flows the way they run they bound it from above.
template <int V, bool PART> double CutSimplex<V, PART>::uphill_cost() const {
    double sum = 0;
    for (int g = 0; g < last_; ++g)
        if (flow_[g] < 0) sum -= double(flow_[g]) * (edge_[g].length + way_uphill(edge_[g]));
    return sum;
}

}  // namespace geoattn::GEOATTN_ISA

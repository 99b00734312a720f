// How the simplex on cuts comes to the transport problem proper: by the roles of the nodes, and by flows over ties.
#pragma once
#include "cut_pivot.hpp"

namespace geoattn::GEOATTN_ISA {

// Whether a pair is solved by roles first: where most edges are essential, in long maps or if many nodes neither give nor take.
// Reads the supplies where that may be.
template <int V, bool PART> bool CutSimplex<V, PART>::has_roles(const Supplies<std::int64_t>& s) {
    if (PART || !net_.by_roles || s.allowed > 0 || (net_.stored.empty() && !values_only_)) return false;
    read(s);
    int givers = 0, takers = 0;
    for (const std::int64_t x : supply_) givers += x > 0, takers += x < 0;
    return givers && takers && (V == 0 || net_.longer || (givers + takers) * 8 <= n_ * 7);
}

// Columns up to the last node that gives or takes.
template <int V, bool PART> int CutSimplex<V, PART>::live_columns() const {
    int last = n_ - 1;
    while (last > 0 && !supply_[last]) --last;
    return last + 1;
}

// Distances from givers to takers are all that bounds potentials. A search then has half as many rows, or less where one of the
// measures is short, and nodes without supply take no part. At its optimum every giver has a tight way down to a taker, so that its
// potentials are feasible for all edges; `tree` begins with it.
template <int V, bool PART>
void CutSimplex<V, PART>::solve_by_roles(StartTree<V, PART>& tree, double negligible, const Stop& stop) {
    given_.clear();
    if (tree.whole()) {
        for (int out : {0, 1}) std::fill(role_[out].begin(), role_[out].end(), 0);
        for (int v = 0; v < n_; ++v)
            if (supply_[v]) flip(role_[supply_[v] > 0].data(), v);
        for (int w = 0; w < extent_.side_words(); ++w) live_[w] = role_[0][w] | role_[1][w];
        live_[last_ >> 6] |= 1ull << (last_ & 63);
        for (int k = 1; k < n_; ++k) {
            const int within = tree.tree()[k].parent;
            live_[within >> 6] |= 1ull << (within & 63);
        }
        look_at(true);
        extent_.see(live_columns());
        start(tree);
        Outcome outcome = this->run(net_, negligible, 0.0, stop, n_ / 4, !net_.stored.empty());
        const bool flows = outcome == Outcome::tied && flow_over_ties(tree, negligible) == TightFlow::Result::found;
        if (outcome == Outcome::tied && !flows) outcome = this->run(net_, negligible, 0.0, stop, n_ / 4);
        if (values_only_ && outcome == Outcome::optimal && in_range_ && this->forgotten_ == 0) prove_by_roles();
        look_at(false);
        extent_.see(extent_.columns());
        if (proved_ || net_.longer) return;
        if (outcome == Outcome::optimal)
            from_root([&](double length, int node, int parent, bool out) { given_.push_back({length, node, parent, out}); });
        for (int v = 0; v < n_; ++v) kept_[v] = supply_[v] != 0;
        for (std::size_t k = given_.size(); k-- > 0;) kept_[given_[k].parent] |= kept_[given_[k].node];
        std::erase_if(given_, [&](const Branch& x) { return !kept_[x.node]; });
    }
    tree.begin(given_);
}

// The value of the transport problem proper, without the other nodes: potentials that keep below the distances from givers to takers
// bound it from below, flows along shortest ways from above. Distances are those of shortened lengths, and so never too long.
template <int V, bool PART> void CutSimplex<V, PART>::prove_by_roles() {
    long double sum = 0;
    slack_ = 0;
    for (int g = 0; g < last_; ++g) {
        if (!flow_[g]) continue;
        const int tail = edge_[g].tail(), head = edge_[g].head();
        const double flow = double(flow_[g]), way = net_.given_way(tail, head);
        sum += static_cast<long double>(flow) * way;
        slack_ += flow * std::max(way - (p_[tail] - p_[head]), 0.0);
    }
    cost_ = double(sum);
    tree_violation_ = -this->tie(net_);
    const std::int16_t *plus = rough_p_.data(), *minus = plus + extent_.columns();
    for (int w = 0; w < extent_.side_words(); ++w)
        for (std::uint64_t left = role_[1][w]; left; left &= left - 1) {
            const int u = 64 * w + std::countr_zero(left);
            const std::int16_t* row = rough_[true] + std::size_t(u) * extent_.stride();
            each_of(at_most<V>(extent_, row, plus, minus[u], role_[0].data(), Network::ROUGH_ERROR),
                    [&](int v) { tree_violation_ = std::min(tree_violation_, net_.distance(u, v) - p_[u] + p_[v]); });
        }
    proved_ = cost_ < INF;
}

// Pivots, until they meet nothing but ties: then a flow over tight distances may end it at once.
template <int V, bool PART>
Outcome CutSimplex<V, PART>::finish(StartTree<V, PART>& tree, double allowed, double negligible, const Stop& stop) {
    const Outcome outcome = this->run(net_, negligible, allowed, stop, this->NO_END, !net_.stored.empty());
    if (outcome != Outcome::tied) return outcome;
    const TightFlow::Result flow = flow_over_ties(tree, negligible);
    if (flow == TightFlow::Result::stuck) return Outcome::unbounded;
    if (flow == TightFlow::Result::found) {
        tree.begin(given_);
        grow_in_turns<1>(1, [&](int) -> auto& { return tree; });
        start(tree);
    }
    return this->run(net_, negligible, allowed, stop);
}

// Where a flow is found, `given_` is a tree with it, of all nodes that give or take.
template <int V, bool PART> TightFlow::Result CutSimplex<V, PART>::flow_over_ties(const StartTree<V, PART>& tree, double negligible) {
    given_.clear();
    const TightFlow::Result result = tight_flow_.find(supply_.data(), p_.data(), negligible);
    if (result != TightFlow::Result::found) return result;
    std::vector<std::vector<std::pair<int, bool>>> at(n_);  // neighbours, and whether the potential rises towards them
    tight_flow_.each_link([&](int giver, int taker) { at[giver].emplace_back(taker, false), at[taker].emplace_back(giver, true); });
    std::vector<int> open{tree.place_of(0)};
    std::vector<char> seen(n_, 0);
    seen[open[0]] = 1;
    for (std::size_t k = 0; k < open.size(); ++k)
        for (const auto& [v, rises] : at[open[k]]) {
            if (seen[v]) continue;
            seen[v] = 1;
            given_.push_back({0.0, v, open[k], rises});
            open.push_back(v);
        }
    return result;
}

}  // namespace geoattn::GEOATTN_ISA

// The dual network simplex of tree_simplex.hpp on cuts instead of branches, from a tree made for the pair (start_tree.hpp).
//
// The edges of a tree lie in slots and never move. A slot knows the nodes on one side of its cut, a node knows the slots
// whose side it is on: the path between two nodes is where their slots differ, so that a pivot follows no pointers. Each
// step of it is a short loop over the set bits of a few words, or runs over whole rows without a branch. The search across a
// cut looks at rough copies of the lengths first (simd_int16.hpp) and at the lengths where those leave several edges.
//
// The side that a slot keeps is the one without the last node, which therefore needs no bit: 65 nodes are one word.
#pragma once
#include <memory>

#include "certificate.hpp"
#include "first_stage.hpp"
#include "tight_flow.hpp"

namespace geoattn::GEOATTN_ISA {

// V: vectors of sixteen columns, 0: any number. PART: on a few nodes of a network.
template <int V, bool PART> class CutSimplex : Simplex<CutSimplex<V, PART>> {
    friend class Simplex<CutSimplex>;
    template <int, bool> friend class CutSimplex;

  public:
    explicit CutSimplex(const Network& network)
        : net_(network), n_(network.n), last_(n_ - 1), extent_(n_, network.stride), words_(extent_.words()), urgency_(extent_.columns(), 0),
          edge_(last_), flow_(last_), side_of_(sets(last_)), slots_of_(sets(n_)), leaving_(sets(n_)), below_(sets(n_)), tails_(sets(1)),
          away_(sets(1)), scratch_(sets(6)), all_(extent_.side_words(), 0), weight_(n_), p_(padded(n_), 0.0), more_(padded(n_)),
          rough_p_(2 * extent_.columns(), 32767), supply_(n_), gathered_(n_), far_(last_), count_(n_), list_(n_ + 1), rows_(n_ + 1),
          order_(n_), role_{sets_of_all(), sets_of_all()}, live_(sets_of_all()), row_set_(sets_of_all()), barred_(sets_of_all()), kept_(n_),
          tight_flow_(net_) {
        look_at(false);
        for (int size = 1; size < n_; ++size) weight_[size] = -float(cut_weight(size, n_));
        for (int v = 0; v < n_; ++v) flip(all_.data(), v);
        for (int k = 0; k < (PART ? 1 : TOGETHER); ++k) start_.push_back(std::make_unique<StartTree<V, PART>>(net_));
        if constexpr (STAGED)
            for (int k = 0; k < int(start_.size()) && net_.few; ++k) stage_.push_back(std::make_unique<Stage>(net_));
    }

    static constexpr int TOGETHER = 4;  // pairs whose trees grow in turns

    void values_only() { values_only_ = true; }  // nobody asks for trees and potentials of all nodes

    void plan(const Supplies<std::int64_t>* supplies, int count, double negligible, const Stop& stop) {
        for (int k = 0; k < count; ++k) {
            read(supplies[k]);
            start_[k]->order(supply_.data());
            if (!stage_.empty()) choose_stage(k, negligible, stop);
        }
        if (!stage_.empty()) grow_in_turns<TOGETHER>(count, [&](int k) -> auto& { return *stage_[k]->solver.start_[0]; });
        for (int k = 0; k < count; ++k) begin_tree(k, negligible, stop, has_roles(supplies[k]) || net_.longer);
        grow_in_turns<TOGETHER>(count, [&](int k) -> auto& { return *start_[k]; });
    }

    void begin(const Supplies<std::int64_t>& supplies, double negligible, const Stop& stop) {  // of a part: its tree grows with others
        read(supplies);
        start_[0]->order(supply_.data());
        if (!stage_.empty()) {
            choose_stage(0, negligible, stop);
            grow_in_turns<1>(1, [&](int) -> auto& { return *stage_[0]->solver.start_[0]; });
        }
        begin_tree(0, negligible, stop, false);
    }

    // The k-th pair of the plan.
    Outcome solve(const Supplies<std::int64_t>& supplies, int k, double negligible, const Stop& stop) {
        by_roles_ = has_roles(supplies);
        proved_ = false;
        if (by_roles_) {
            solve_by_roles(*start_[k], negligible, stop);
            if (proved_) return Outcome::optimal;
        }
        if (net_.longer) return Outcome::stalled;  // a prefix has no edges
        if (by_roles_) grow_in_turns<1>(1, [&](int) -> auto& { return *start_[k]; });
        read(supplies);
        start(*start_[k]);
        // Of a part any feasible tree will do: where all ways lead over one node it has nothing but ties.
        if constexpr (PART) return this->run(net_, negligible, supplies.allowed, stop, n_ / 4, true);
        return finish(*start_[k], supplies.allowed, negligible, stop);
    }

    bool by_roles() const { return by_roles_; }  // whether the last pair was solved so

    // The k-th pair once more, on its edges alone: ties may leave a tree by roles that is optimal and not feasible for all edges.
    Outcome solve_by_edges(const Supplies<std::int64_t>& supplies, int k, double negligible, const Stop& stop) {
        by_roles_ = proved_ = false;
        read(supplies);
        start_[k]->begin({});
        grow_in_turns<1>(1, [&](int) -> auto& { return *start_[k]; });
        start(*start_[k]);
        return finish(*start_[k], supplies.allowed, negligible, stop);
    }

    double cost();  // sum of flow * length, in units of mass; from here on the potentials are those of the given lengths
    double excess(double moved_mass, double);  // upper bound of cost() - optimum, in units of mass

    double potential(int v) const { return p_[v]; }

    template <class Visit> void branches(Visit visit) const {  // node, parent, whether the potential falls towards the node
        const auto away = tails_away();
        visit(source_, source_, false);
        for (int g = 0; g < last_; ++g) {
            const Edge& x = edge_[g];
            if (has(away.data(), g)) visit(x.tail(), x.head(), false);
            else visit(x.head(), x.tail(), true);
        }
    }

    template <class Visit> void from_root(Visit visit) {  // length, node, parent, whether the potential rises from it; parents first
        sort_slots();
        for (int k = last_ - 1; k >= 0; --k) {
            const Edge& x = edge_[order_[k]];
            const bool out = has(away_.data(), order_[k]);
            visit(x.length, x.end[!out], x.end[out], out);
        }
    }

  private:
    static constexpr double SIGN[2] = {-1.0, 1.0};
    static constexpr int WORDS = Extent<V>::WORDS, MANY = 24;
    static constexpr bool STAGED = V == 0 || !PART;
    using Stage = FirstStage<V == 0 ? 0 : V <= 5 ? 2 : V <= 21 ? 5 : 9>;
    struct Edge {
        double length;
        std::int32_t end[2];  // tail and head: p(tail) = p(head) + length
        int tail() const { return end[0]; }
        int head() const { return end[1]; }
    };
    struct Found {
        double slack = INF;
        int row = -1, column = -1;
    };

    const Network& net_;
    int n_, last_, source_ = 0;
    Extent<V> extent_;
    int words_;
    bool in_range_ = true;          // of the rough copies
    const std::int16_t* rough_[2];  // by direction, inward and outward
    Row<std::int32_t> urgency_;     // weighted uphill flow as the bits of a float, the slot in the last ones; below keys(): downhill
    std::vector<Edge> edge_;
    Row<std::int64_t> flow_;      // from tail to head
    Row<std::uint64_t> side_of_;  // of a slot: the nodes on the side of its cut without the last node
    Row<std::uint64_t> slots_of_; // of a node: the slots whose side it is on; all nodes may have a slot the wrong way round
    Row<std::uint64_t> leaving_;  // of a node: the slots whose tail it is
    Row<std::uint64_t> below_;    // of a node of a new tree: those of its branch, without the last one
    Row<std::uint64_t> tails_;    // the slots with the tail on their side
    Row<std::uint64_t> away_;     // as they were sorted last: those with the tail away from the source
    Row<std::uint64_t> scratch_, all_;
    Row<float> weight_;
    Row<double> p_, more_;
    double allowed_ = 0, cost_ = 0;  // of the pair that was read last
    double slack_ = 0;           // what the edges of the tree lack to be tight, with their flows
    double tree_violation_ = 0;  // by how much the potentials violate an edge of the tree, at most 0
    Row<std::int16_t> rough_p_;  // p, then -p, in units of the rough copies; the largest number beyond the last node
    Row<std::int64_t> supply_, gathered_;
    std::vector<int> far_, count_;  // sizes of the sides away from the source
    std::vector<std::int32_t> list_, rows_, order_;
    bool by_roles_ = false;                   // whether the last pair was solved so
    bool values_only_ = false, proved_ = false;  // ... and its value, cost_, is known without its edges
    bool direct_ = PART;                      // edges are distances, from givers to takers unless it is a part
    Row<std::uint64_t> role_[2];              // takers and givers
    Row<std::uint64_t> live_;                 // nodes that take part: these, those within the tree, and the last one
    Row<std::uint64_t> row_set_, barred_;     // of a search
    std::vector<char> kept_;                  // of a tree by roles: nodes that the next tree begins with
    std::vector<std::unique_ptr<StartTree<V, PART>>> start_;  // of the pairs of the plan
    std::vector<std::unique_ptr<Stage>> stage_;               // for them
    TightFlow tight_flow_;                                    // for pairs that meet nothing but ties
    std::vector<Branch> given_;                               // what a stage found
    std::int32_t most_ = 0;                                   // the largest urgency
    std::uint64_t ties_ = 0;                                  // with the best edge so far

    Row<std::uint64_t> sets(int count) const { return Row<std::uint64_t>(std::size_t(count) * extent_.words(), 0); }
    std::uint64_t* set_of(Row<std::uint64_t>& sets, int k) const { return sets.data() + std::size_t(k) * extent_.words(); }
    const std::uint64_t* set_of(const Row<std::uint64_t>& sets, int k) const { return sets.data() + std::size_t(k) * extent_.words(); }
    Row<std::uint64_t> sets_of_all() const { return Row<std::uint64_t>(std::size_t(extent_.side_words()), 0); }
    Words<WORDS> scratch(int k) { return Words<WORDS>(scratch_.data() + std::size_t(k) * extent_.words()); }

    void choose_stage(int k, double negligible, const Stop& stop) {
        if constexpr (STAGED) {
            stage_[k]->choose(net_, *start_[k], supply_.data(), allowed_);
            stage_[k]->solver.begin(stage_[k]->supplies_of(), negligible, stop);
        }
    }

    void begin_tree(int k, double negligible, const Stop& stop, bool by_roles) {
        given_.clear();
        if constexpr (STAGED)
            if (!stage_.empty()) stage_[k]->solve(*start_[k], given_, negligible, stop);
        start_[k]->begin(given_, by_roles ? supply_.data() : nullptr);
    }

    bool has_roles(const Supplies<std::int64_t>& s);
    int live_columns() const;

    void look_at(bool distances) {
        direct_ = PART || distances;
        for (bool outward : {false, true})
            rough_[outward] = distances ? net_.template between<PART>(outward) : net_.template rough<PART>(outward);
    }

    Outcome finish(StartTree<V, PART>& tree, double allowed, double negligible, const Stop& stop);
    TightFlow::Result flow_over_ties(const StartTree<V, PART>& tree, double negligible);
    void solve_by_roles(StartTree<V, PART>& tree, double negligible, const Stop& stop);
    void prove_by_roles();
    Found find_by_roles(bool outward, const std::uint64_t* side, int& count);
    double least_distance(int u, int& at) const;

    void read(const Supplies<std::int64_t>& s) {
        for (int v = 0; v < n_; ++v) supply_[v] = s.from[v] - s.to[v];
        supply_[s.source] += s.idle;
        supply_[s.sink] -= s.idle;
        allowed_ = s.allowed;
    }

    void round_potentials() {
        std::int16_t *plus = rough_p_.data(), *minus = plus + extent_.columns();
        in_range_ = round_all(p_.data(), net_.rough_scale, padded(n_), Network::ROUGH_MOST, plus, minus);
        for (int k = n_; k < padded(n_); ++k) plus[k] = minus[k] = 32767;
    }

    int keys() const { return int(std::bit_ceil(unsigned(V > 0 ? 16 * V : n_))); }  // the low bits of an urgency, below it, name its slot

    std::int32_t urgency_of(int slot, std::int64_t flow, float weight) const {
        return std::int32_t((std::bit_cast<std::uint32_t>(float(flow) * weight) & ~std::uint32_t(keys() - 1)) | std::uint32_t(slot));
    }

    std::int32_t most_of_all() {
        auto none = scratch(0);
        std::fill_n(none.data(), words_, 0);
        return largest<V>(extent_, urgency_.data(), none.data());
    }

    double way_uphill(const Edge& x) const;
    double uphill_cost() const;
    Row<std::uint64_t> tails_away() const;
    void sort_slots();
    void count_tree_edges();
    void start(const StartTree<V, PART>& tree);
    double pivot(int e);

    [[gnu::noinline]] void centre() {
        const double shift = p_[source_];
        for (int v = 0; v < n_; ++v) p_[v] -= shift;
        round_potentials();
    }

    int most_urgent() {
        if (most_ < keys()) return -1;
        return this->restless_ ? this->any_from(urgency_, last_, keys()) : most_ & (keys() - 1);
    }

    void forget(int g) {
        urgency_[g] = 0;
        most_ = most_of_all();
    }

    double flow_across(int g) const { return double(flow_[g]); }

    double link(int tail, int head) const {
        return direct_ ? net_.template reach_of<PART>(tail, head) : net_.template link<PART>(tail, head);
    }
    double length_of(bool outward, int row, int column) const { return outward ? link(row, column) : link(column, row); }

    void consider(Found& best, bool outward, int row, int column) {
        const double sign = SIGN[outward], slack = (length_of(outward, row, column) - sign * p_[row]) + sign * p_[column];
        ties_ = slack < best.slack ? 1 : ties_ + (slack == best.slack);
        if (slack < best.slack || (this->restless_ && slack == best.slack && this->next_random() % ties_ == 0)) best = {slack, row, column};
    }

    Found find_edge(bool outward, const std::uint64_t* side, int& count);
    Found search(bool outward, const std::uint64_t* rows, const std::uint64_t* barred, std::int32_t* list, int& count);
    Found settle(bool outward, const std::uint64_t* rows, const std::uint64_t* barred, const std::int32_t* list, const Hits<V>& columns,
                 int limit, int count);
    Found search_lengths(bool outward, const std::uint64_t* rows, const std::uint64_t* barred, const std::int32_t* list, int count);
};

}  // namespace geoattn::GEOATTN_ISA

#include "cut_pivot.hpp"
#include "cut_ties.hpp"
#include "cut_value.hpp"

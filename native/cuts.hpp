// The dual network simplex of tree.hpp for maps of up to 257 classes, on cuts instead of branches.
//
// The edges of a tree lie in slots and never move. A slot knows the nodes on one side of its cut, a node knows the slots
// whose side it is on: the path between two nodes is where their slots differ, so that a pivot follows no pointers. Each
// step of it is a short loop over the set bits of a few words, or runs over whole rows without a branch.
//
// The side that a slot keeps is the one without the last node, which therefore needs no bit: a class token and 64 patches
// are one word.
#pragma once
#include <deque>

#include "few.hpp"
#include "sixteen.hpp"

namespace geoattn::GEOATTN_ISA {

// V: vectors of sixteen columns. PART: on a few nodes of a network.
template <int WORDS, int V, bool PART> class Cuts : Simplex<Cuts<WORDS, V, PART>> {
    friend class Simplex<Cuts>;
    template <int, int, bool> friend class Cuts;

  public:
    explicit Cuts(const Network& network)
        : net_(network), n_(network.n), last_(n_ - 1), urgency_(SLOTS, 0), edge_(last_), flow_(last_),
          side_of_(last_, Set{}), slots_of_(n_, Set{}), leaving_(n_, Set{}), weight_(n_), p_(padded(n_), 0.0), coarse_p_(padded(n_), 0.0f), rough_p_(2 * COLUMNS, 32767),
          supply_(n_), far_(last_), count_(n_), list_(n_), order_(n_), greedy_(TOGETHER, Greedy<V, PART>(network)), alone_(n_, Set{}), below_(n_), gathered_(n_) {
        for (bool outward : {false, true}) rough_[outward] = net_.rough(outward), rows_[outward] = &net_.rows(outward);
        for (int size = 1; size < n_; ++size) weight_[size] = -float(cut_weight(size, n_));
        for (int v = 0; v < n_; ++v) all_[v >> 6] |= 1ull << (v & 63);
        for (int v = 0; v < last_; ++v) alone_[v].flip(v);
        if (net_.warm) plant(feasible_tree<double>(net_));
        for (int k = 0; k < TOGETHER && net_.few; ++k) few_.emplace_back(net_);
    }

    static constexpr int TOGETHER = 4;  // pairs whose trees grow in turns

    void plan(const Supplies<std::int64_t>* supplies, int count, double negligible, const Stop& stop) {
        if (net_.warm) return;
        for (int k = 0; k < count; ++k) {
            read(supplies[k]);
            greedy_[k].order(supply_.data());
            if constexpr (!PART)
                if (net_.few) few_[k].choose(net_, greedy_[k], supply_.data());
        }
        if constexpr (!PART)
            if (net_.few) grow_in_turns<TOGETHER>(count, [&](int k) -> auto& { return few_[k].solver.greedy_[0]; });
        for (int k = 0; k < count; ++k) {
            given_.clear();
            if constexpr (!PART)
                if (net_.few) few_[k].solve(given_, negligible, stop);
            greedy_[k].begin(given_);
        }
        grow_in_turns<TOGETHER>(count, [&](int k) -> auto& { return greedy_[k]; });
    }

    void begin(const Supplies<std::int64_t>& supplies) {  // of a part: its tree grows with others
        read(supplies);
        greedy_[0].order(supply_.data());
        greedy_[0].begin({});
    }

    // The k-th pair of the plan.
    Outcome solve(const Supplies<std::int64_t>& supplies, int k, double negligible, const Stop& stop) {
        read(supplies);
        if (net_.warm) load(supplies.source);
        else start(greedy_[k]);
        return this->run(net_, negligible, stop);
    }

    // Sum of flow * length, in units of mass; notes what `excess` needs.
    double cost() {
        double costs[4] = {}, slacks[4] = {}, lacks[4] = {};
        const auto add = [&](int g, int k) {
            const Edge& x = edge_[g];
            const double flow = std::fabs(double(flow_[g])), lack = std::fabs(x.length - (p_[x.tail()] - p_[x.head()]));
            costs[k] += flow * x.length;
            slacks[k] += flow * lack;
            lacks[k] += lack;
        };
        int g = 0;
        for (; g + 4 <= last_; g += 4)
            for (int k = 0; k < 4; ++k) add(g + k, k);
        for (; g < last_; ++g) add(g, 0);
        slack_ = (slacks[0] + slacks[1]) + (slacks[2] + slacks[3]);
        lack_ = (lacks[0] + lacks[1]) + (lacks[2] + lacks[3]);
        return (costs[0] + costs[1]) + (costs[2] + costs[3]);
    }

    // See Tree::excess. From the edges alone (certificate.hpp); what is not good `enough`, or has ties, from all distances.
    double excess(double moved_mass, double, double enough) {
        const double quick = slack_ + lack_ * moved_mass;
        if (!net_.once.empty() && quick <= enough && lack_ * net_.scale < 1e-9) {
            for (int v = 0; v < padded(n_); ++v) coarse_p_[v] = float(p_[v] * net_.scale);
            if (net_.once.nearly_tight(coarse_p_.data(), n_) == last_) return quick;
        }
        return slack_ - violation(net_, p_.data()) * moved_mass;
    }

    double potential(int v) const { return p_[v]; }

    template <class Visit> void branches(Visit visit) const {  // node, parent, whether the potential falls towards the node
        visit(source_, source_, false);
        for (int g = 0; g < last_; ++g) {
            const Edge& x = edge_[g];
            if (tail_is_far(g)) visit(x.tail(), x.head(), false);
            else visit(x.head(), x.tail(), true);
        }
    }

    template <class Visit> void from_root(Visit visit) {  // length, node, parent, whether the potential rises from it; parents first
        sort_slots(source_);
        for (int k = last_ - 1; k >= 0; --k) {
            const Edge& x = edge_[order_[k]];
            const bool out = tail_is_far(order_[k]);
            visit(x.length, x.end[!out], x.end[out], out);
        }
    }

  private:
    static constexpr int KEYS = 256;  // the low bits of an urgency name its slot
    static constexpr double SIGN[2] = {-1.0, 1.0};
    static constexpr int COLUMNS = 16 * V, SLOTS = std::min(16 * V, 64 * WORDS), SIDE = (V + 3) / 4;
    struct alignas(WORDS == 4 ? 32 : 8 * WORDS) Set {
        std::uint64_t word[WORDS];
        bool has(int k) const { return word[k >> 6] >> (k & 63) & 1; }
        void flip(int k) { word[k >> 6] ^= 1ull << (k & 63); }
        int size() const {
            int sum = 0;
            for (std::uint64_t w : word) sum += std::popcount(w);
            return sum;
        }
    };
    struct Edge {
        double length;
        std::int32_t end[2];  // tail and head: p(tail) = p(head) + length
        int tail() const { return end[0]; }
        int head() const { return end[1]; }
    };

    const Network& net_;
    int n_, last_, source_ = 0;
    const std::int16_t* rough_[2];  // by direction, inward and outward
    const Matrix* rows_[2];
    Row<std::int32_t> urgency_;  // weighted uphill flow as the bits of a float, the slot in the last eight; below 256: downhill
    std::vector<Edge> edge_;
    Row<std::int64_t> flow_;  // from tail to head
    Row<Set> side_of_;        // of a slot: the nodes on the side of its cut without the last node
    Row<Set> slots_of_;       // of a node: the slots whose side it is on; all nodes may have a slot the wrong way round
    Row<Set> leaving_;        // of a node: the slots whose tail it is
    Set tails_{};             // the slots with the tail on their side
    std::uint64_t all_[SIDE] = {};  // the nodes of the tree
    Row<float> weight_;
    Row<double> p_;
    Row<float> coarse_p_;
    double slack_ = 0, lack_ = 0;  // what the edges of the tree lack to be tight, with their flows and without
    Row<std::int16_t> rough_p_;  // p, then -p, in units of Network::rough; the largest number beyond the last node
    Row<std::int64_t> supply_;
    std::vector<int> far_, count_;  // sizes of the sides away from the source
    std::vector<std::int32_t> list_, order_;
    std::vector<Greedy<V, PART>> greedy_;          // of the pairs of the plan
    std::vector<Branch> given_;              // what `solve_few` found
    std::deque<FewNodes<1, V <= 5 ? 2 : 5>> few_;  // for them: they stay where they are
    Row<Set> alone_;                   // of a node: itself, unless it is the last one
    Row<Set> below_;                   // of a node of a new tree: those of its branch, without the last one
    Row<std::int64_t> gathered_;       // supplies of branches
    std::int32_t most_ = 0;            // the largest urgency
    std::uint64_t ties_ = 0;           // with the best edge so far

    void read(const Supplies<std::int64_t>& s) {
        for (int v = 0; v < n_; ++v) supply_[v] = s.from[v] - s.to[v];
        supply_[s.source] += s.idle;
        supply_[s.sink] -= s.idle;
    }

    bool tail_is_far(int g) const { return tails_.has(g) != (slots_of_[source_].has(g) != slots_of_[last_].has(g)); }

    void round_potentials() {
        std::int16_t *plus = rough_p_.data(), *minus = plus + COLUMNS;
        round_all(p_.data(), net_.rough_scale, padded(n_), plus, minus);
        for (int k = n_; k < padded(n_); ++k) plus[k] = minus[k] = 32767;
    }

    static std::int32_t urgency_of(int slot, std::int64_t flow, float weight) {
        return std::int32_t((std::bit_cast<std::uint32_t>(float(flow) * weight) & ~std::uint32_t(KEYS - 1)) | std::uint32_t(slot));
    }

    void plant(const std::vector<Link>& tree) {
        for (int v = 1; v < n_; ++v) {
            const int g = v - 1, parent = tree[v].parent;
            const bool falls = tree[v].falls;
            const int tail = falls ? parent : v, head = falls ? v : parent;
            edge_[g] = {net_.out[tail][head], {tail, head}};
            leaving_[tail].flip(g);
        }
        for (int v = 0; v < n_; ++v)
            for (int a = v; a != 0; a = tree[a].parent) slots_of_[v].flip(a - 1);
        for (int v = 0; v < last_; ++v)
            for (int g = 0; g < last_; ++g)
                if (slots_of_[v].has(g) != slots_of_[last_].has(g)) side_of_[g].flip(v);
        for (int g = 0; g < last_; ++g)
            if (slots_of_[edge_[g].tail()].has(g) != slots_of_[last_].has(g)) tails_.flip(g);
    }

    // Fills order_ with the slots, leaves first as seen from the source, and far_ with the sizes of their far sides.
    void sort_slots(int source) {
        int *far = far_.data(), *count = count_.data();
        std::fill_n(count, n_, 0);
        for (int g = 0; g < last_; ++g) {
            const int size = side_of_[g].size();
            far[g] = slots_of_[source].has(g) != slots_of_[last_].has(g) ? n_ - size : size;
            ++count[far[g]];
        }
        for (int size = 1, place = 0; size < n_; ++size) {
            const int c = count[size];
            count[size] = place;
            place += c;
        }
        for (int g = 0; g < last_; ++g) order_[count[far[g]]++] = g;
    }

    // Flows and potentials from scratch. The potentials are exact near the source, where the mass is.
    void load(int source) {
        source_ = source;
        std::int64_t* supply = supply_.data();
        Set near, far_tails;  // the slots with the source on their side; those with the tail away from the source
        for (int w = 0; w < WORDS; ++w) {
            near.word[w] = slots_of_[source].word[w] ^ slots_of_[last_].word[w];
            far_tails.word[w] = tails_.word[w] ^ near.word[w];
        }
        const int slots = last_;
        sort_slots(source);
        const int* far = far_.data();
        const std::int32_t* order = order_.data();
        std::int64_t* flow = flow_.data();
        for (int k = 0; k < slots; ++k) {  // leaves first
            const int g = order[k];
            const Edge& x = edge_[g];
            const bool rises = far_tails.has(g);
            const std::int64_t up = supply[x.end[!rises]], f = rises ? up : -up;
            supply[x.end[rises]] += up;
            flow[g] = f;
            urgency_[g] = urgency_of(g, f, weight_[far[g]]);
        }
        most_ = largest<SLOTS>(urgency_.data(), Set{}.word);
        p_[source] = 0;
        for (int k = slots - 1; k >= 0; --k) {
            const int g = order[k];
            const Edge& x = edge_[g];
            const bool rises = far_tails.has(g);
            p_[x.end[!rises]] = p_[x.end[rises]] + x.length * SIGN[rises];
        }
        round_potentials();
    }

    // From a tree, parents first. Slot k - 1 is above its k-th node.
    void start(const Greedy<V, PART>& greedy) {
        const Branch* tree = greedy.tree();
        std::copy_n(greedy.potentials(), n_, p_.begin());
        round_potentials();
        source_ = tree[0].node;
        Set *slots_of = slots_of_.data(), *below = below_.data(), *leaving = leaving_.data(), outward{};
        std::fill_n(leaving, n_, Set{});
        std::copy_n(alone_.data(), n_, below);
        slots_of[source_] = Set{};
        for (int g = 0; g < last_; ++g) {
            const Branch& x = tree[g + 1];
            const int turn = (x.node ^ x.parent) & -x.outward, tail = x.parent ^ turn;
            slots_of[x.node] = slots_of[x.parent];
            slots_of[x.node].flip(g);
            edge_[g] = {x.length, {tail, x.node ^ turn}};
            leaving[tail].flip(g);
            outward.word[g >> 6] |= std::uint64_t(x.outward) << (g & 63);
        }
        Set others, with_last = slots_of[last_];
        for (int w = 0; w < WORDS; ++w) others.word[w] = all_[w];
        if (last_ < 64 * WORDS) others.flip(last_);
        std::copy(supply_.begin(), supply_.end(), gathered_.begin());
        std::int64_t *supply = gathered_.data(), *flow = flow_.data();
        std::int32_t* urgency = urgency_.data();
        const float* weight = weight_.data();
        Set* side_of = side_of_.data();
        for (int g = last_ - 1; g >= 0; --g) {
            const int v = tree[g + 1].node, parent = tree[g + 1].parent;
            const std::uint64_t turn = -std::uint64_t(with_last.has(g));
            const Set branch = below[v];
            Set side;
            for (int w = 0; w < WORDS; ++w) {
                below[parent].word[w] |= branch.word[w];
                side.word[w] = branch.word[w] ^ (others.word[w] & turn);
            }
            side_of[g] = side;
            const std::int64_t up = supply[v], falls = std::int64_t(outward.has(g)) - 1;  // its sign is as good as random: no branch
            supply[parent] += up;
            flow[g] = (up ^ falls) - falls;
            urgency[g] = urgency_of(g, flow[g], weight[side.size()]);
        }
        for (int w = 0; w < WORDS; ++w) tails_.word[w] = outward.word[w] ^ with_last.word[w];
        most_ = largest<SLOTS>(urgency_.data(), Set{}.word);
    }

    [[gnu::noinline]] void centre() {
        const double shift = p_[source_];
        for (int v = 0; v < n_; ++v) p_[v] -= shift;
        round_potentials();
    }

    int most_urgent() {
        if (most_ < KEYS) return -1;
        return this->restless_ ? this->any_from(urgency_, last_, KEYS) : most_ % KEYS;
    }

    void forget(int g) {
        urgency_[g] = 0;
        most_ = largest<SLOTS>(urgency_.data(), Set{}.word);
    }

    double flow_across(int g) const { return double(flow_[g]); }

    struct Found {
        double slack = INF, length = 0;
        int row = -1, column = -1;
    };

    double length_of(bool outward, int row, int column) const {
        if constexpr (PART) return net_.template distance<true>(row, column);
        else return (*rows_[outward])[row][column];
    }

    Found measured(bool outward, int row, int column) const {
        const double sign = SIGN[outward], length = length_of(outward, row, column);
        return {(length - sign * p_[row]) + sign * p_[column], length, row, column};
    }

    // The least slack exactly: among the edges that the first look leaves, or among all if it leaves none.
    [[gnu::noinline]] Found settle(bool outward, const std::uint64_t* side, const Hits<V>& columns, int limit) {
        const std::int16_t *own = own_p(outward), *other = own_p(!outward);
        Found best;
        if (limit < Network::ROUGH_NONE)
            columns.each([&](int c) {
                at_most<V>(rough_[!outward] + c * COLUMNS, own, other[c], side, limit).each([&](int r) { consider(best, outward, r, c); });
            });
        if (best.slack < INF) return best;
        for (int r = 0; r < n_; ++r)
            for (int c = 0; c < n_; ++c)
                if (side[r >> 6] >> (r & 63) & ~side[c >> 6] >> (c & 63) & 1) consider(best, outward, r, c);
        return best;
    }

    void consider(Found& best, bool outward, int row, int column) {
        const Found found = measured(outward, row, column);
        ties_ = found.slack < best.slack ? 1 : ties_ + (found.slack == best.slack);
        if (found.slack < best.slack || (this->restless_ && found.slack == best.slack && this->next_random() % ties_ == 0)) best = found;
    }

    const std::int16_t* own_p(bool outward) const { return rough_p_.data() + outward * COLUMNS; }

    [[gnu::always_inline]] double pivot(const int e) {
        const std::int64_t supply = -flow_[e];
        const Set cut = side_of_[e];
        const bool other_side = cut.size() * 2 > n_;  // the side with the last node is the smaller one
        const bool outward = tails_.has(e) == other_side;
        const std::uint64_t turn = -std::uint64_t(other_side);
        alignas(32) std::uint64_t side[SIDE];
        for (int w = 0; w < SIDE; ++w) side[w] = ((w < WORDS ? cut.word[w] : 0) ^ turn) & all_[w];

        std::int32_t* list = list_.data();
        const std::int16_t *own = own_p(outward), *other = own_p(!outward);
        int count, limit;
        const Hits<V> columns = search_cut<V, WORDS>(rough_[outward], side, own, other, Network::ROUGH_ERROR, list, count, limit);
        const int column = columns.first();
        int row = list[0];
        bool alone = limit < Network::ROUGH_NONE && columns.single();
        if (count > 1) {  // one in five cuts has one row
            const Hits<V> rows = at_most<V>(rough_[!outward] + column * COLUMNS, own, other[column], side, limit);
            row = rows.first();
            alone &= rows.single();
        }
        Found found;
        if (alone) [[likely]] {
            found = measured(outward, row, column);
        } else {
            found = settle(outward, side, columns, limit);
            if (!(found.slack < INF)) return INF;
        }
        const double step = std::max(found.slack, 0.0);
        const int swap = (found.row ^ found.column) & -int(!outward);
        const int tail = found.row ^ swap, head = found.column ^ swap;

        // The supply leaves the cut by the new edge: along the path between its ends, cuts and flows change.
        using W = Words<WORDS>;
        Set moving, more;
        const W at_tail = W::of(slots_of_[tail].word), at_head = W::of(slots_of_[head].word);
        (at_tail ^ at_head).to(moving.word);
        (at_head ^ W::of(slots_of_[last_].word) ^ W::of(tails_.word)).to(more.word);
        Set path = moving;
        path.flip(e);
        const double shift = SIGN[outward] * step, scale = net_.rough_scale;
        double* p = p_.data();
        std::int16_t* rough_p = rough_p_.data();
        Set* slots_of = slots_of_.data();
        const Set* leaving = leaving_.data();
        const W path_words = W::of(path.word);
        W tails = W::of(Set{}.word);
        for (int k = 0; k < count; ++k) {
            const int r = list[k];
            p[r] += shift;
            const int rounded = int(std::lrint(p[r] * scale));
            rough_p[r] = std::int16_t(rounded);
            rough_p[COLUMNS + r] = std::int16_t(-rounded);
            (W::of(slots_of[r].word) ^ path_words).to(slots_of[r].word);
            tails = tails | W::of(leaving[r].word);
        }
        // Slots last, and the next cut from registers: what was just written in parts would have to reach the cache before it can
        // be read as a whole.
        const std::int64_t change[2] = {supply, -supply};
        std::int64_t* flow = flow_.data();
        std::int32_t *urgency = urgency_.data(), most = largest<SLOTS>(urgency, moving.word);
        const float* weight = weight_.data();
        Set* side_of = side_of_.data();
        const W cut_words = W::of(cut.word);
        for (Members<WORDS> slots(path.word); slots;) {
            const int g = slots.next();
            const std::int64_t f = flow[g] + change[more.has(g)];
            flow[g] = f;
            (W::of(side_of[g].word) ^ cut_words).to(side_of[g].word);
            urgency[g] = urgency_of(g, f, weight[side_of[g].size()]);
            most = std::max(most, urgency[g]);
        }
        flow[e] = supply;
        urgency[e] = 0;
        most_ = most;
        Set turned;
        for (std::uint64_t& w : turned.word) w = turn;
        (W::of(tails_.word) ^ (path_words & (tails ^ W::of(turned.word)))).to(tails_.word);
        tails_.flip(e);
        leaving_[edge_[e].tail()].flip(e);
        leaving_[tail].flip(e);
        edge_[e] = {found.length, {tail, head}};
        if (std::fabs(p_[source_]) > 0.5 * net_.reach) centre();  // rough potentials are small numbers
        return step;
    }
};

}  // namespace geoattn::GEOATTN_ISA

// The pivot of the simplex on cuts, and how it takes over a tree.
#pragma once
#include "cut_simplex.hpp"

namespace geoattn::GEOATTN_ISA {

// From a tree, parents first. Slot k - 1 is above its k-th node.
template <int V, bool PART> void CutSimplex<V, PART>::start(const StartTree<V, PART>& grown) {
    const Branch* tree = grown.tree();
    std::copy_n(grown.potentials(), n_, p_.begin());
    round_potentials();
    source_ = tree[0].node;
    const int slots = last_;
    std::fill(leaving_.begin(), leaving_.end(), 0);
    std::fill(below_.begin(), below_.end(), 0);
    for (int v = 0; v < slots; ++v) flip(set_of(below_, v), v);
    std::fill_n(set_of(slots_of_, source_), words_, 0);
    Edge* edges = edge_.data();
    auto outward = scratch(0);
    std::fill_n(outward.data(), words_, 0);
    for (int g = 0; g < slots; ++g) {
        const Branch& x = tree[g + 1];
        const int turn = (x.node ^ x.parent) & -x.outward, tail = x.parent ^ turn;
        copy_all(set_of(slots_of_, x.node), set_of(slots_of_, x.parent), extent_);
        flip(set_of(slots_of_, x.node), g);
        edges[g] = {x.length, {tail, x.node ^ turn}};
        flip(set_of(leaving_, tail), g);
        outward.word[g >> 6] |= std::uint64_t(x.outward) << (g & 63);
    }
    auto others = scratch(1), with_last = scratch(2);
    std::copy_n(all_.data(), words_, others.data());
    std::copy_n(set_of(slots_of_, last_), words_, with_last.data());
    if (last_ < 64 * words_) flip(others.data(), last_);
    std::copy(supply_.begin(), supply_.end(), gathered_.begin());
    std::int64_t *supply = gathered_.data(), *flow = flow_.data();
    std::int32_t* urgency = urgency_.data();
    const float* weight = weight_.data();
    for (int g = slots - 1; g >= 0; --g) {
        const int v = tree[g + 1].node, parent = tree[g + 1].parent;
        const std::uint64_t turn = -std::uint64_t(has(with_last.data(), g));
        std::uint64_t *side = set_of(side_of_, g), *branch = set_of(below_, v);
        add_all(set_of(below_, parent), branch, extent_);
        each_word(extent_, [&](int w) { side[w] = branch[w] ^ (others.word[w] & turn); });
        const std::int64_t up = supply[v], falls = std::int64_t(has(outward.data(), g)) - 1;  // its sign is as good as random: no branch
        supply[parent] += up;
        flow[g] = (up ^ falls) - falls;
        urgency[g] = urgency_of(g, flow[g], weight[size_of(side, extent_)]);
    }
    for (int w = 0; w < words_; ++w) tails_[w] = outward.word[w] ^ with_last.word[w];
    most_ = most_of_all();
}

// The least slack by the lengths themselves: among the edges that the first look leaves, or among all if it leaves none or many.
template <int V, bool PART>
[[gnu::noinline]] auto CutSimplex<V, PART>::settle(bool outward, const std::uint64_t* rows, const std::uint64_t* barred,
                                                   const std::int32_t* list, const Hits<V>& columns, int limit, int count) -> Found {
    const std::int16_t *own = rough_p_.data() + outward * extent_.columns(), *other = rough_p_.data() + !outward * extent_.columns();
    Found best;
    // Where nearly all ways lead over one node, many links of a part are tight. No slack is below zero: the first tight one will do.
    const double tight = PART && !this->restless_ ? this->tie(net_) : -INF;
    // A column costs a row in 16 bits, a row of the other search costs one of lengths, four times as long.
    if (!(limit < Network::ROUGH_NONE) || !(PART || count_of(columns) <= std::max(MANY, 4 * count)))
        return search_lengths(outward, rows, barred, list, count);
    const std::int64_t most = PART ? std::numeric_limits<std::int64_t>::max() : 64 + std::int64_t(count) * n_ / 16;
    std::int64_t left = most;  // so many edges, one by one
    each_of(columns, [&](int c) {
        if (best.slack <= tight || left < 0) return;
        each_of(at_most<V>(extent_, rough_[!outward] + std::size_t(c) * extent_.stride(), own, other[c], rows, limit), [&](int r) {
            if (!(best.slack <= tight) && --left >= 0) consider(best, outward, r, c);
        });
    });
    this->compared_ += most - left;
    return left >= 0 && best.slack < INF ? best : search_lengths(outward, rows, barred, list, count);
}

// Of very long maps: min over v of the distance u -> v plus more_[v], and where it is.
template <int V, bool PART> double CutSimplex<V, PART>::least_distance(int u, int& at) const {
    double low = INF;
    for (int v = 0; v < n_; ++v)
        if (const double value = more_[v] < INF ? net_.distance(u, v) + more_[v] : INF; value < low) low = value, at = v;
    return low;
}

template <int V, bool PART>
[[gnu::noinline]] auto CutSimplex<V, PART>::search_lengths(bool outward, const std::uint64_t* rows, const std::uint64_t* barred,
                                                           const std::int32_t* list, int count) -> Found {
    Found best;
    this->compared_ += std::int64_t(count) * n_ / 4;  // four at a time
    const auto least = [&](int u, int& at) {
        if (!direct_) return net_.lengths.least(u, more_.data(), at);
        if (net_.stored.empty()) return least_distance(u, at);
        return least_sum(&net_.stored[std::size_t(u) * n_], more_.data(), n_, at);
    };
    if constexpr (PART) {
        for (int k = 0; k < count; ++k)
            for (int c = 0; c < n_; ++c)
                if (!has(barred, c)) consider(best, outward, list[k], c);
    } else if (outward || !net_.directed) {
        const double sign = SIGN[outward];
        for (int c = 0; c < n_; ++c) more_[c] = has(barred, c) ? INF : sign * p_[c];
        for (int k = 0, at = -1; k < count; ++k) {
            const int r = list[k];
            const double slack = least(r, at) - sign * p_[r];
            if (slack < best.slack) best = {slack, r, at};
        }
    } else {
        for (int r = 0; r < n_; ++r) more_[r] = has(rows, r) ? p_[r] : INF;
        for (int c = 0, at = -1; c < n_; ++c) {
            if (has(barred, c)) continue;
            const double slack = least(c, at) - p_[c];
            if (slack < best.slack) best = {slack, at, c};
        }
    }
    return best;
}

// From `rows` to the columns that are not barred, or the other way round: the edge that becomes tight first. Lists the rows.
template <int V, bool PART>
[[gnu::always_inline]] inline auto CutSimplex<V, PART>::search(bool outward, const std::uint64_t* rows, const std::uint64_t* barred,
                                                               std::int32_t* list, int& count) -> Found {
    if (!in_range_) [[unlikely]] {
        count = 0;
        for (int v = 0; v < n_; ++v)
            if (has(rows, v)) list[count++] = v;
        return search_lengths(outward, rows, barred, list, count);
    }
    const std::int16_t *own = rough_p_.data() + outward * extent_.columns(), *other = rough_p_.data() + !outward * extent_.columns();
    int limit;
    const Hits<V> columns = search_cut<V>(extent_, rough_[outward], rows, barred, own, other, Network::ROUGH_ERROR, list, count, limit);
    const int column = first_of(columns);
    int row = list[0];
    bool alone = limit < Network::ROUGH_NONE && count_of(columns) == 1;
    if (count > 1 && alone) {  // one in five cuts has one row
        const Hits<V> near =
            at_most<V>(extent_, rough_[!outward] + std::size_t(column) * extent_.stride(), own, other[column], rows, limit);
        row = first_of(near);
        alone = count_of(near) == 1;
    }
    if (!alone) return settle(outward, rows, barred, list, columns, limit, count);
    Found found;
    consider(found, outward, row, column);
    return found;
}

// The edge across a cut that becomes tight first; lists the nodes of the side.
template <int V, bool PART> [[gnu::always_inline]] inline auto CutSimplex<V, PART>::find_edge(bool outward, const std::uint64_t* side,
                                                                                              int& count) -> Found {
    if constexpr (!PART)
        if (direct_) return find_by_roles(outward, side, count);
    return search(outward, side, side, list_.data(), count);
}

// Only distances from givers to takers: whichever of the two are fewer, on their sides of the cut, are the rows.
template <int V, bool PART>
[[gnu::noinline]] auto CutSimplex<V, PART>::find_by_roles(bool outward, const std::uint64_t* side, int& count) -> Found {
    count = 0;
    for (int w = 0; w < extent_.side_words(); ++w)
        for (std::uint64_t left = side[w] & live_[w]; left; left &= left - 1) list_[count++] = 64 * w + std::countr_zero(left);
    int givers = 0, takers = 0;
    for (int w = 0; w < extent_.side_words(); ++w) {
        const std::uint64_t tails = outward ? side[w] : ~side[w];
        givers += std::popcount(tails & role_[1][w]);
        takers += std::popcount(~tails & role_[0][w]);
    }
    if (!givers || !takers) return {};
    const bool from_givers = givers <= takers;
    for (int w = 0; w < extent_.side_words(); ++w) {
        const std::uint64_t tails = outward ? side[w] : ~side[w], give = tails & role_[1][w], take = ~tails & role_[0][w];
        row_set_[w] = from_givers ? give : take;
        barred_[w] = ~(from_givers ? take : give);
    }
    int rows;
    Found found = search(from_givers, row_set_.data(), barred_.data(), rows_.data(), rows);
    if (from_givers != outward) std::swap(found.row, found.column);  // as seen from the side
    return found;
}

template <int V, bool PART> [[gnu::always_inline]] inline double CutSimplex<V, PART>::pivot(const int e) {
    const std::int64_t supply = -flow_[e];
    const Extent<V>& extent = extent_;
    auto cut = scratch(0), path = scratch(1), moving = scratch(2), more = scratch(3), tails = scratch(4), wide = scratch(5);
    copy_all(cut.data(), set_of(side_of_, e), extent);
    const bool other_side = size_of(cut.data(), extent) * 2 > n_;  // the side with the last node is the smaller one
    const bool outward = has(tails_.data(), e) == other_side;
    const std::uint64_t turn = -std::uint64_t(other_side);
    alignas(32) std::uint64_t fixed[V > 0 ? (V + 3) / 4 : 1];
    std::uint64_t* side = V > 0 ? fixed : wide.data();
    for (int w = 0; w < extent.side_words(); ++w) side[w] = ((w < extent.words() ? cut.word[w] : 0) ^ turn) & all_[w];

    int count;
    const Found found = find_edge(outward, side, count);
    if (!(found.slack < INF)) return INF;
    const double step = std::max(found.slack, 0.0);
    const int swap = (found.row ^ found.column) & -int(!outward);
    const int tail = found.row ^ swap, head = found.column ^ swap;

    // The supply leaves the cut by the new edge: along the path between its ends, cuts and flows change.
    const std::uint64_t *at_tail = set_of(slots_of_, tail), *at_head = set_of(slots_of_, head), *at_last = set_of(slots_of_, last_);
    each_word(extent, [&](int w) {
        path.word[w] = moving.word[w] = at_tail[w] ^ at_head[w];
        more.word[w] = at_head[w] ^ at_last[w] ^ tails_[w];
        tails.word[w] = 0;
    });
    flip(path.data(), e);
    const double shift = SIGN[outward] * step, scale = net_.rough_scale;
    double* p = p_.data();
    std::int16_t *plus = rough_p_.data(), *minus = plus + extent.columns();
    const std::int32_t* list = list_.data();
    unsigned beyond = 0;
    for (int k = 0; k < count; ++k) {
        const int r = list[k];
        p[r] += shift;
        const int rounded = int(std::lrint(p[r] * scale));
        beyond |= unsigned(rounded + Network::ROUGH_MOST) > 2u * Network::ROUGH_MOST;
        plus[r] = std::int16_t(rounded);
        minus[r] = std::int16_t(-rounded);
        flip_all(set_of(slots_of_, r), path.data(), extent);
        add_all(tails.data(), set_of(leaving_, r), extent);
    }
    // Slots last, and the next cut from registers: what was just written in parts would have to reach the cache before it can
    // be read as a whole.
    const std::int64_t change[2] = {supply, -supply};
    const float* weight = weight_.data();
    std::int32_t *urgency = urgency_.data(), most = largest<V>(extent, urgency, moving.data());
    for (Members<WORDS> slots(path.data(), extent.words()); slots;) {
        const int g = slots.next();
        const std::int64_t f = flow_[g] + change[has(more.data(), g)];
        flow_[g] = f;
        std::uint64_t* own = set_of(side_of_, g);
        flip_all(own, cut.data(), extent);
        urgency[g] = urgency_of(g, f, weight[size_of(own, extent)]);
        most = std::max(most, urgency[g]);
    }
    flow_[e] = supply;
    urgency[e] = 0;
    most_ = most;
    each_word(extent, [&](int w) { tails_[w] ^= path.word[w] & (tails.word[w] ^ turn); });
    flip(tails_.data(), e);
    flip(set_of(leaving_, edge_[e].tail()), e);
    flip(set_of(leaving_, tail), e);
    edge_[e] = {link(tail, head), {tail, head}};
    if (beyond || std::fabs(p_[source_]) > 0.5 * net_.reach) centre();  // rough potentials are small numbers
    return step;
}

}  // namespace geoattn::GEOATTN_ISA

// Transport where ties are the rule: a primal-dual method on the distances from givers to takers, as sets of bits.
//
// In maps with ties the potentials are optimal long before the tree is: all that pivots still do is to find, among equally good
// flows, the one that shortened lengths prefer. This begins with the potentials of the simplex and looks for any flow over distances
// that are tight, up to the shortening. Mass that finds no way raises the potentials of all it reaches until another distance becomes
// tight (Ford and Fulkerson). A map has few different lengths if it has ties, so that this ends after a few rises; a map with too
// many of them goes back to the simplex.
#pragma once
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

class TightFlow {
  public:
    enum class Result { found, none, stuck };

    explicit TightFlow(const Network& net) : net_(net) {}

    // From these potentials. `none`: it took too many rises. `stuck`: more than `negligible` has nowhere to go.
    Result find(const std::int64_t* supply, const double* potentials, double negligible) {
        gather(supply);
        if (givers_.empty() || takers_.empty()) return Result::none;
        improve(potentials);
        for (int g = 0; g < count(); ++g) look(g);
        arcs_.clear();
        at_taker_.assign(takers_.size(), {});
        for (int rises = 0; rises < RISES; ++rises) {
            if (route()) return join_all() ? Result::found : Result::none;
            if (rise()) continue;
            // those that reach no other taker have more than the takers they reach want
            const std::int64_t rest = std::accumulate(left_.begin(), left_.end(), std::int64_t(0)) - unbalanced_;
            return double(rest) > negligible ? Result::stuck : Result::none;
        }
        return Result::none;
    }

    // A tree of tight distances with the flow on it, in names of the network's classes: visit(giver, taker).
    template <class Visit> void each_link(Visit visit) const {
        for (const auto& [g, t] : links_) visit(givers_[g], takers_[t]);
    }

  private:
    static constexpr double SLACK = 64 * Lengths::SHARE;  // of the longest distance
    static constexpr int RISES = 60, APART = 16;
    struct Arc {
        int giver, taker;
        std::int64_t amount;
    };

    const Network& net_;
    std::vector<int> givers_, takers_;
    std::vector<std::int64_t> left_, wanted_;
    std::vector<double> cost_, high_, low_, open_;  // distances; potentials of givers and takers, and of takers that are not reached
    std::int64_t unbalanced_ = 0;     // what the supplies do not balance by, from rounding
    int words_ = 0;
    std::vector<std::uint64_t> tight_, unseen_;
    std::vector<Arc> arcs_;
    std::vector<std::vector<int>> at_taker_;  // arcs that end there
    std::vector<int> from_, by_, queue_;      // of a search: the giver before a taker, the arc that leads back to a giver
    std::vector<std::pair<int, int>> links_;

    const double* row(int g) const { return &cost_[std::size_t(g) * takers_.size()]; }  // distances to the takers
    const std::uint64_t* tight(int g) const { return &tight_[std::size_t(g) * words_]; }
    int count() const { return int(givers_.size()); }

    void gather(const std::int64_t* supply) {
        givers_.clear(), takers_.clear(), left_.clear(), wanted_.clear();
        unbalanced_ = 0;
        for (int v = 0; v < net_.n; ++v) {
            unbalanced_ += supply[v];
            if (supply[v] > 0) givers_.push_back(v), left_.push_back(supply[v]);
            if (supply[v] < 0) takers_.push_back(v), wanted_.push_back(-supply[v]);
        }
        unbalanced_ = std::max<std::int64_t>(unbalanced_, 0);
        words_ = int(takers_.size() + 63) / 64;
        cost_.resize(givers_.size() * takers_.size());
        double* cost = cost_.data();
        for (const int g : givers_) {
            const double* all = &net_.stored[std::size_t(g) * net_.n];
            for (const int t : takers_) *cost++ = all[t];
        }
    }

    double least(int g, const std::vector<double>& more) const {
        int at = -1;
        return least_sum(row(g), more.data(), int(takers_.size()), at);
    }

    // Takers as low as the givers allow, then givers as high as the takers do.
    void improve(const double* p) {
        high_.resize(givers_.size()), low_.assign(takers_.size(), -INF);
        for (int g = 0; g < count(); ++g) high_[g] = p[givers_[g]];
        for (int g = 0; g < count(); ++g) {
            const double *lengths = row(g), high = high_[g];
            double* low = low_.data();
            for (std::size_t t = 0; t < takers_.size(); ++t) low[t] = low[t] < high - lengths[t] ? high - lengths[t] : low[t];
        }
        for (std::size_t t = 0; t < takers_.size(); ++t)
            if (!(low_[t] > -INF)) low_[t] = p[takers_[t]];  // nobody reaches it
        for (int g = 0; g < count(); ++g)
            if (const double most = least(g, low_); most < INF) high_[g] = most;
        tight_.resize(givers_.size() * std::size_t(words_));
    }

    void look(int g) {
        const double *lengths = row(g), *low = low_.data(), limit = high_[g] + SLACK * net_.reach;
        const int count = int(takers_.size());
        for (int w = 0; w < words_; ++w) {
            std::uint64_t word = 0;
            for (int k = 0, at = 64 * w; k < std::min(64, count - 64 * w); ++k, ++at)
                word |= std::uint64_t(lengths[at] + low[at] <= limit) << k;
            tight_[std::size_t(g) * words_ + w] = word;
        }
    }

    // As much as tight distances carry: straight, then along chains. False if some is left.
    bool route() {
        for (int g = 0; g < count(); ++g)
            for (int w = 0; w < words_ && left_[g]; ++w)
                for (std::uint64_t rest = tight(g)[w]; rest && left_[g]; rest &= rest - 1) {
                    const int t = 64 * w + std::countr_zero(rest);
                    if (const std::int64_t amount = std::min(left_[g], wanted_[t])) {
                        left_[g] -= amount, wanted_[t] -= amount;
                        add(g, t, amount);
                    }
                }
        for (;;) {
            begin_search();
            if (queue_.empty()) return true;
            const int end = search();
            if (end < 0) return false;
            push(end);
        }
    }

    void begin_search() {
        unseen_.assign(words_, ~0ull);
        from_.assign(takers_.size(), -1);
        by_.assign(givers_.size(), -2);
        queue_.clear();
        for (int g = 0; g < count(); ++g)
            if (left_[g] > unbalanced_) by_[g] = -1, queue_.push_back(g);
    }

    // Breadth first from the givers in the queue: to their tight takers, and from a taker back to those who give to it. Returns a
    // taker that wants more, or -1.
    int search() {
        for (std::size_t head = 0; head < queue_.size(); ++head) {
            const int g = queue_[head];
            for (int w = 0; w < words_; ++w)
                for (std::uint64_t fresh = tight(g)[w] & unseen_[w]; fresh; fresh &= fresh - 1) {
                    const int t = 64 * w + std::countr_zero(fresh);
                    unseen_[w] &= ~(1ull << (t % 64));
                    from_[t] = g;
                    if (wanted_[t] > 0) return t;
                    for (const int a : at_taker_[t])
                        if (arcs_[a].amount > 0 && by_[arcs_[a].giver] == -2) by_[arcs_[a].giver] = a, queue_.push_back(arcs_[a].giver);
                }
        }
        return -1;
    }

    void push(int end) {
        std::int64_t amount = wanted_[end];
        int g = from_[end];
        for (; by_[g] >= 0; g = from_[arcs_[by_[g]].taker]) amount = std::min(amount, arcs_[by_[g]].amount);
        amount = std::min(amount, left_[g]);
        left_[g] -= amount, wanted_[end] -= amount;
        for (int t = end;;) {
            g = from_[t];
            const int back = by_[g];
            add(g, t, amount);
            if (back < 0) return;
            arcs_[back].amount -= amount;
            t = arcs_[back].taker;
        }
    }

    // What the last search has reached rises until another distance is tight; false if none ever is.
    bool rise() {
        open_.resize(takers_.size());
        for (std::size_t t = 0; t < takers_.size(); ++t) open_[t] = from_[t] < 0 ? low_[t] : INF;
        double step = INF;
        for (const int g : queue_) step = std::min(step, least(g, open_) - high_[g]);
        if (!(step < INF)) return false;
        for (const int g : queue_) high_[g] += step;
        for (std::size_t t = 0; t < takers_.size(); ++t) low_[t] += from_[t] < 0 ? 0.0 : step;
        for (int g = 0; g < count(); ++g) {
            if (by_[g] != -2) look(g);
            else  // what it might give to takers that have risen is not tight any more, and no flow
                for (int w = 0; w < words_; ++w) tight_[std::size_t(g) * words_ + w] &= unseen_[w];
        }
        return true;
    }

    void add(int g, int t, std::int64_t amount) {
        for (const int a : at_taker_[t])
            if (arcs_[a].giver == g) {
                arcs_[a].amount += amount;
                return;
            }
        at_taker_[t].push_back(int(arcs_.size()));
        arcs_.push_back({g, t, amount});
    }

    // The flow without cycles, and tight distances between what it leaves apart: one tree. A group that none joins is shifted, which
    // costs nothing as its flow is balanced.
    bool join_all() {
        const int nodes = count() + int(takers_.size());
        std::vector<int> set(nodes);
        std::iota(set.begin(), set.end(), 0);
        const auto find = [&](int v) {
            while (set[v] != v) v = set[v] = set[set[v]];
            return v;
        };
        cancel_cycles();
        links_.clear();
        const auto join = [&](int g, int t) {
            const int a = find(g), b = find(count() + t);
            if (a == b) return;
            set[a] = b;
            links_.emplace_back(g, t);
        };
        for (const Arc& arc : arcs_)
            if (arc.amount > 0) join(arc.giver, arc.taker);
        for (int g = 0; g < count(); ++g)
            for (int w = 0; w < words_; ++w)
                for (std::uint64_t rest = tight(g)[w]; rest; rest &= rest - 1) join(g, 64 * w + std::countr_zero(rest));
        for (int tries = 0; int(links_.size()) < nodes - 1; ++tries) {
            if (tries == APART) return false;
            double step = INF;
            int giver = -1, taker = -1;
            const int group = find(0);
            for (int g = 0; g < count(); ++g)
                for (std::size_t t = 0; find(g) == group && t < takers_.size(); ++t)
                    if (const double slack = row(g)[t] + low_[t] - high_[g]; slack < step && find(count() + int(t)) != group)
                        step = slack, giver = g, taker = int(t);
            if (giver < 0) return false;
            for (int g = 0; g < count(); ++g) high_[g] += find(g) == group ? step : 0.0;
            for (std::size_t t = 0; t < takers_.size(); ++t) low_[t] += find(count() + int(t)) == group ? step : 0.0;
            join(giver, taker);
        }
        return true;
    }

    // Arcs join the others one by one. One that closes a cycle moves its flow around it until it, or another one, has none left.
    void cancel_cycles() {
        const int nodes = count() + int(takers_.size());
        std::vector<int> set(nodes), before(nodes);
        std::iota(set.begin(), set.end(), 0);
        std::vector<std::vector<int>> joined(nodes);  // arcs at a node, some without flow by now
        const auto find = [&](int v) {
            while (set[v] != v) v = set[v] = set[set[v]];
            return v;
        };
        for (int a = 0; a < int(arcs_.size()); ++a) {
            Arc& arc = arcs_[a];
            const int g = arc.giver, t = count() + arc.taker;
            if (arc.amount > 0 && find(g) == find(t) && path(joined, g, t, before)) {
                std::int64_t least = arc.amount;
                const auto along = [&](auto use) {  // from the taker back: every other arc gives way
                    bool falls = false;
                    for (int v = t; v != g; falls = !falls) {
                        Arc& x = arcs_[before[v]];
                        use(x, falls);
                        v = v < count() ? count() + x.taker : x.giver;
                    }
                };
                along([&](const Arc& x, bool falls) { least = falls ? std::min(least, x.amount) : least; });
                along([&](Arc& x, bool falls) { x.amount += falls ? -least : least; });
                arc.amount -= least;
            }
            if (arc.amount <= 0) continue;
            set[find(g)] = find(t);
            joined[g].push_back(a), joined[t].push_back(a);
        }
    }

    bool path(const std::vector<std::vector<int>>& joined, int from, int to, std::vector<int>& before) {
        std::fill(before.begin(), before.end(), -1);
        queue_.assign(1, from);
        for (std::size_t head = 0; head < queue_.size(); ++head) {
            const int v = queue_[head];
            if (v == to) return true;
            for (const int a : joined[v]) {
                const int other = v < count() ? count() + arcs_[a].taker : arcs_[a].giver;
                if (arcs_[a].amount <= 0 || other == from || before[other] >= 0) continue;
                before[other] = a;
                queue_.push_back(other);
            }
        }
        return false;
    }
};

}  // namespace geoattn::GEOATTN_ISA

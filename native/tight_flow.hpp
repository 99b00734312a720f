// A flow over edges that are tight, up to the shortening of lengths.
//
// In maps with ties the potentials are optimal long before the tree is: all that pivots still do is to find, among equally good
// flows, the one that shortened lengths prefer. This looks for any flow from givers to takers over distances with no slack to speak
// of. If all mass finds a way, the flow and the potentials prove each other.
#pragma once
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

class TightFlow {
  public:
    struct Arc {
        int giver, taker;
        std::int64_t amount;
    };

    explicit TightFlow(const Network& net) : net_(net) {}

    // A flow for these supplies, without cycles; false if the tight distances do not carry all of it.
    bool find(const std::int64_t* supply, const double* p) {
        gather(supply);
        if (givers_.empty() || takers_.empty()) return false;
        look(p);
        arcs_.clear();
        at_taker_.assign(takers_.size(), {});
        for (std::size_t g = 0; g < givers_.size(); ++g)
            each(tight(int(g)), [&](int t) {
                if (!left_[g] || !wanted_[t]) return;
                ship(int(g), t, std::min(left_[g], wanted_[t]));
            });
        for (std::size_t g = 0; g < givers_.size(); ++g)
            while (left_[g] > unbalanced_)
                if (!augment(int(g))) return false;
        cancel_cycles();
        return true;
    }

    // In names of the network's classes.
    template <class Visit> void each_arc(Visit visit) const {
        for (const Arc& a : arcs_)
            if (a.amount > 0) visit(Arc{givers_[a.giver], takers_[a.taker], a.amount});
    }

  private:
    static constexpr double SLACK = 8 * Lengths::SHARE;  // of the longest distance

    const Network& net_;
    std::vector<int> givers_, takers_;
    std::vector<std::int64_t> left_, wanted_;
    std::int64_t unbalanced_ = 0;  // what the supplies do not balance by, from rounding
    int words_ = 0;
    std::vector<std::uint64_t> tight_, unseen_;
    std::vector<Arc> arcs_;
    std::vector<std::vector<int>> at_taker_;  // arcs that end there
    std::vector<int> from_, by_, queue_;      // of a search: the giver before a taker, the arc that leads back to a giver

    const std::uint64_t* tight(int g) const { return &tight_[std::size_t(g) * words_]; }
    template <class Visit> void each(const std::uint64_t* set, Visit visit) const {
        for (int w = 0; w < words_; ++w)
            for (std::uint64_t rest = set[w]; rest; rest &= rest - 1) visit(64 * w + std::countr_zero(rest));
    }

    void gather(const std::int64_t* supply) {
        givers_.clear(), takers_.clear(), left_.clear(), wanted_.clear();
        unbalanced_ = 0;
        for (int v = 0; v < net_.n; ++v) {
            unbalanced_ += supply[v];
            if (supply[v] > 0) givers_.push_back(v), left_.push_back(supply[v]);
            if (supply[v] < 0) takers_.push_back(v), wanted_.push_back(-supply[v]);
        }
        unbalanced_ = std::max<std::int64_t>(unbalanced_, 0);
    }

    void look(const double* p) {
        words_ = int(takers_.size() + 63) / 64;
        tight_.assign(givers_.size() * std::size_t(words_), 0);
        const double most = SLACK * net_.reach;
        for (std::size_t g = 0; g < givers_.size(); ++g) {
            const double* row = &net_.stored[std::size_t(givers_[g]) * net_.n];
            const double high = p[givers_[g]] + most;
            std::uint64_t* own = &tight_[g * std::size_t(words_)];
            for (std::size_t t = 0; t < takers_.size(); ++t)
                own[t / 64] |= std::uint64_t(row[takers_[t]] + p[takers_[t]] <= high) << (t % 64);
        }
    }

    void ship(int g, int t, std::int64_t amount) {
        left_[g] -= amount, wanted_[t] -= amount;
        add(g, t, amount);
    }

    // Breadth first from a giver: to its tight takers, and from a taker back to those who give to it.
    bool augment(int start) {
        unseen_.assign(words_, ~0ull);
        from_.assign(takers_.size(), -1);
        by_.assign(givers_.size(), -2);
        by_[start] = -1;
        queue_.assign(1, start);
        for (std::size_t head = 0; head < queue_.size(); ++head) {
            const int g = queue_[head];
            for (int w = 0; w < words_; ++w)
                for (std::uint64_t fresh = tight(g)[w] & unseen_[w]; fresh; fresh &= fresh - 1) {
                    const int t = 64 * w + std::countr_zero(fresh);
                    unseen_[w] &= ~(1ull << (t % 64));
                    from_[t] = g;
                    if (wanted_[t] > 0) return push(start, t);
                    for (const int a : at_taker_[t])
                        if (arcs_[a].amount > 0 && by_[arcs_[a].giver] == -2) by_[arcs_[a].giver] = a, queue_.push_back(arcs_[a].giver);
                }
        }
        return false;
    }

    bool push(int start, int end) {
        std::int64_t amount = std::min(left_[start], wanted_[end]);
        for (int t = end; from_[t] != start; t = arcs_[by_[from_[t]]].taker) amount = std::min(amount, arcs_[by_[from_[t]]].amount);
        for (int t = end;;) {
            const int g = from_[t];
            if (g == start) {
                left_[g] -= amount;
                add(g, t, amount);
                break;
            }
            Arc& back = arcs_[by_[g]];
            back.amount -= amount;
            const int next = back.taker;
            add(g, t, amount);
            t = next;
        }
        wanted_[end] -= amount;
        return true;
    }

    // Arcs join the others one by one. One that closes a cycle moves its flow around it until it, or another one, has none left.
    void cancel_cycles() {
        const int givers = int(givers_.size()), nodes = givers + int(takers_.size());
        std::vector<int> set(nodes), before(nodes);
        std::iota(set.begin(), set.end(), 0);
        std::vector<std::vector<int>> joined(nodes);  // arcs at a node, some without flow by now
        const auto find = [&](int v) {
            while (set[v] != v) v = set[v] = set[set[v]];
            return v;
        };
        for (int a = 0; a < int(arcs_.size()); ++a) {
            Arc& arc = arcs_[a];
            const int g = arc.giver, t = givers + arc.taker;
            if (arc.amount > 0 && find(g) == find(t) && path(joined, g, t, before)) {
                std::int64_t least = arc.amount;
                const auto along = [&](auto use) {  // from the taker back: every other arc gives way
                    bool falls = false;
                    for (int v = t; v != g; falls = !falls) {
                        Arc& x = arcs_[before[v]];
                        use(x, falls);
                        v = v < givers ? givers + x.taker : x.giver;
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
        const int givers = int(givers_.size());
        std::fill(before.begin(), before.end(), -1);
        queue_.assign(1, from);
        for (std::size_t head = 0; head < queue_.size(); ++head) {
            const int v = queue_[head];
            if (v == to) return true;
            for (const int a : joined[v]) {
                const int other = v < givers ? givers + arcs_[a].taker : arcs_[a].giver;
                if (arcs_[a].amount <= 0 || other == from || before[other] >= 0) continue;
                before[other] = a;
                queue_.push_back(other);
            }
        }
        return false;
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
};

}  // namespace geoattn::GEOATTN_ISA

// Transport on a map of few different distances (levels.hpp): a primal-dual method whose every step is a few operations on sets.
//
// Takers that share a potential are one group. The distances that are tight for a giver are then the union of a few sets, its level k
// within the group that lies length(k) below it. Mass goes over tight distances by phases of shortest ways (Dinic). What finds no way
// raises the potentials of all it reaches until another distance is tight (Ford and Fulkerson). Potentials are sums of a few lengths, so
// that there are as few groups and rises as there are levels: no tree, no pivots, and nothing that can stall.
#pragma once
#include <bit>

#include "network.hpp"
#include "simplex.hpp"

namespace geoattn::GEOATTN_ISA {

class LevelFlow {
  public:
    explicit LevelFlow(const Network& net)
        : net_(net), levels_(net.levels), tie_(0x1p-44 * net.reach), wanted_(net.n, 0), low_(net.n), arcs_at_(net.n) {}

    // `stalled`: too many rises, or potentials further apart than the levels that are kept.
    Outcome solve(const Supplies<std::int64_t>& supplies, double negligible) {
        read(supplies);
        if (!first_potentials()) return Outcome::stalled;
        for (int rises = 0; !route(); ++rises) {
            const double step = least_slack();
            if (step == INF && levels_.beyond() == INF)
                return double(to_give_ - unbalanced_) > negligible ? Outcome::unbounded : Outcome::stalled;
            if (step == INF || rises == RISES || !rise(step)) return Outcome::stalled;
        }
        return Outcome::optimal;
    }

    // Sum of flow * distance, along ways of the given lengths.
    double cost() {
        long double sum = 0;
        slack_ = 0;
        for (const Group& group : groups_) each_member(group.set, [&](int v) { low_[v] = group.low; });
        each_member(takers_, [&](int t) {
            for (const Arc& arc : arcs_at_[t]) {
                if (!arc.amount) continue;
                const double flow = double(arc.amount), way = net_.given_way(givers_[arc.giver], t);
                sum += static_cast<long double>(flow) * way;
                slack_ += flow * std::max(way - (high_[arc.giver] - low_[t]), 0.0);
            }
        });
        return double(sum);
    }

    // Upper bound of cost() - optimum. No distance is shorter than its level, so that potentials within the levels prove a lower bound.
    double excess(double moved_mass, double) const {
        double worst = 0;
        for (int g = 0; g < count(); ++g)
            for (const Group& group : groups_) {
                const double fall = high_[g] - group.low;
                for (int k = 0; k < levels_.count() && fall - levels_.length(k) > worst; ++k)
                    if (meet(levels_.from(givers_[g], k), group.set)) worst = fall - levels_.length(k);
                worst = std::max(worst, fall - levels_.beyond());
            }
        return slack_ + worst * moved_mass;
    }

  private:
    static constexpr int RISES = 64, GROUPS = 32;
    using Set = std::vector<std::uint64_t>;
    struct Arc {
        int giver;
        std::int64_t amount;
    };
    struct Group {
        double low;
        Set set;
    };

    const Network& net_;
    const Levels& levels_;
    double tie_, slack_ = 0;
    int first_ = 0, last_ = 0;  // words of sets with takers
    std::vector<int> givers_, depth_, queue_;
    std::vector<std::int64_t> left_, wanted_;  // by giver, and by class
    std::int64_t to_give_ = 0, to_take_ = 0, unbalanced_ = 0;
    std::vector<double> high_, low_;
    std::vector<Group> groups_, next_;
    Set takers_, wanting_, unseen_, tight_, carries_;  // the last two by giver: takers at a tight distance, and with an arc
    std::vector<std::vector<Arc>> arcs_at_;            // by taker
    std::vector<Set> layers_;                          // of a search: takers by their number of steps
    int deepest_ = 0;

    int count() const { return int(givers_.size()); }
    std::uint64_t* row(Set& sets, int g) const { return sets.data() + std::size_t(g) * levels_.words(); }

    bool meet(const std::uint64_t* a, const Set& b) const {
        std::uint64_t both = 0;
        for (int w = first_; w < last_; ++w) both |= a[w] & b[w];
        return both != 0;
    }

    template <class Visit> void each_member(const Set& set, Visit visit) const {
        for (int w = first_; w < last_; ++w)
            for (std::uint64_t rest = set[w]; rest; rest &= rest - 1) visit(64 * w + std::countr_zero(rest));
    }

    void read(const Supplies<std::int64_t>& s) {
        const int words = levels_.words();
        each_member(takers_, [&](int t) { arcs_at_[t].clear(), wanted_[t] = 0; });  // of the last pair
        givers_.clear(), left_.clear();
        takers_.assign(words, 0);
        to_give_ = to_take_ = 0;
        for (int v = 0; v < net_.n; ++v) {
            const std::int64_t supply = s.from[v] - s.to[v] + (v == s.source ? s.idle : 0) - (v == s.sink ? s.idle : 0);
            if (supply > 0) givers_.push_back(v), left_.push_back(supply), to_give_ += supply;
            if (supply < 0) takers_[v >> 6] |= 1ull << (v & 63), wanted_[v] = -supply, to_take_ -= supply;
        }
        unbalanced_ = std::max<std::int64_t>(to_give_ - to_take_, 0);
        for (first_ = 0; first_ < words && !takers_[first_];) ++first_;
        for (last_ = words; last_ > first_ && !takers_[last_ - 1];) --last_;
        wanting_ = takers_;
        carries_.assign(std::size_t(count()) * words, 0);
        tight_.assign(std::size_t(count()) * words, 0);
    }

    // All takers at zero, each giver as high as the nearest one allows.
    bool first_potentials() {
        groups_.assign(1, {0.0, takers_});
        high_.assign(givers_.size(), 0.0);
        for (int g = 0; g < count() && to_take_; ++g) {
            int k = 0;
            while (k < levels_.count() && !meet(levels_.from(givers_[g], k), takers_)) ++k;
            if (k == levels_.count() && levels_.beyond() < INF) return false;
            if (k < levels_.count()) high_[g] = levels_.length(k), look(g);
        }
        return true;
    }

    void look(int g) {
        std::uint64_t* own = row(tight_, g);
        std::fill(own + first_, own + last_, 0);
        for (const Group& group : groups_)
            for (int k = 0; k < levels_.count(); ++k)
                if (std::fabs(levels_.length(k) + group.low - high_[g]) <= tie_) {
                    const std::uint64_t* level = levels_.from(givers_[g], k);
                    for (int w = first_; w < last_; ++w) own[w] |= level[w] & group.set[w];
                }
    }

    // As much as tight distances carry; false if some is left.
    bool route() {
        while (to_give_ && to_take_) {
            if (!search()) return false;
            for (int g = 0; g < count(); ++g)
                if (left_[g] && depth_[g] == 0) {
                    const std::int64_t sent = push(g, left_[g], 0);
                    left_[g] -= sent, to_give_ -= sent, to_take_ -= sent;
                }
        }
        return true;
    }

    // Breadth first: from givers with mass to their tight takers, and from these back to those who give to them. Ends with the first
    // layer that has takers who want more; false if there is none.
    bool search() {
        unseen_ = takers_;
        depth_.assign(givers_.size(), -1);
        queue_.clear();
        for (int g = 0; g < count(); ++g)
            if (left_[g]) depth_[g] = 0, queue_.push_back(g);
        std::size_t from = 0;
        for (int depth = 0;; ++depth) {
            if (int(layers_.size()) <= depth) layers_.emplace_back();
            Set& layer = layers_[depth];
            layer.assign(levels_.words(), 0);
            const std::size_t end = queue_.size();
            for (; from < end; ++from)
                for (int w = first_; w < last_; ++w) layer[w] |= row(tight_, queue_[from])[w];
            std::uint64_t any = 0, wanting = 0;
            for (int w = first_; w < last_; ++w) {
                layer[w] &= unseen_[w], unseen_[w] &= ~layer[w];
                any |= layer[w], wanting |= layer[w] & wanting_[w];
            }
            if (wanting) {
                for (int w = first_; w < last_; ++w) layer[w] &= wanting_[w];
                deepest_ = depth;
                return true;
            }
            if (!any) return false;
            each_member(layer, [&](int t) {
                for (const Arc& arc : arcs_at_[t])
                    if (arc.amount && depth_[arc.giver] < 0) depth_[arc.giver] = depth + 1, queue_.push_back(arc.giver);
            });
        }
    }

    // Up to so much from a giver of this depth, by way of the layers. A taker that lets no more through leaves its layer.
    std::int64_t push(int g, std::int64_t amount, int depth) {
        std::int64_t sent = 0;
        std::uint64_t* layer = layers_[depth].data();
        for (int w = first_; w < last_; ++w)
            for (std::uint64_t rest = row(tight_, g)[w] & layer[w]; rest; rest &= rest - 1) {
                const int t = 64 * w + std::countr_zero(rest);
                std::int64_t through = 0;
                if (depth == deepest_) {
                    through = std::min(amount - sent, wanted_[t]);
                    if (!(wanted_[t] -= through)) wanting_[w] &= ~(rest & -rest);
                } else {
                    for (Arc& arc : arcs_at_[t]) {
                        if (!arc.amount || depth_[arc.giver] != depth + 1) continue;
                        const std::int64_t more = push(arc.giver, std::min(amount - sent - through, arc.amount), depth + 1);
                        arc.amount -= more, through += more;
                        if (sent + through == amount) break;
                    }
                }
                if (through) add(g, t, through);
                sent += through;
                if (sent == amount) return sent;
                layer[w] &= ~(rest & -rest);
            }
        return sent;
    }

    void add(int g, int t, std::int64_t amount) {
        std::vector<Arc>& arcs = arcs_at_[t];
        std::uint64_t* known = row(carries_, g);
        if (!has(known, t)) {
            flip(known, t);
            arcs.push_back({g, amount});
            return;
        }
        std::find_if(arcs.begin(), arcs.end(), [&](const Arc& arc) { return arc.giver == g; })->amount += amount;
    }

    // How far what the last search has reached may rise.
    double least_slack() {
        double step = INF;
        for (Group& group : groups_) {
            next_.assign(1, group);
            Set& open = next_[0].set;
            std::uint64_t any = 0;
            for (int w = first_; w < last_; ++w) any |= open[w] &= unseen_[w];
            for (std::size_t q = 0; any && q < queue_.size(); ++q)
                for (int k = 0; k < levels_.count(); ++k) {
                    const double slack = levels_.length(k) + group.low - high_[queue_[q]];
                    if (!(slack < step)) break;
                    if (meet(levels_.from(givers_[queue_[q]], k), open)) {
                        step = slack;
                        break;
                    }
                }
        }
        return step;
    }

    bool rise(double step) {
        step = std::max(step, 0.0);
        for (const int g : queue_) high_[g] += step;
        next_.clear();
        for (const Group& group : groups_)
            for (const bool seen : {false, true}) {
                Set part(group.set);
                std::uint64_t any = 0;
                for (int w = first_; w < last_; ++w) any |= part[w] &= seen ? ~unseen_[w] : unseen_[w];
                if (!any) continue;
                const double low = seen ? group.low + step : group.low;
                const auto same =
                    std::find_if(next_.begin(), next_.end(), [&](const Group& x) { return std::fabs(x.low - low) <= 0.25 * tie_; });
                if (same == next_.end()) next_.push_back({low, std::move(part)});
                else
                    for (int w = first_; w < last_; ++w) same->set[w] |= part[w];
            }
        groups_.swap(next_);
        if (groups_.size() > GROUPS) return false;
        for (int g = 0; g < count(); ++g) {
            if (depth_[g] >= 0) look(g);
            else  // what it might give to takers that have risen is not tight any more, and no flow
                for (int w = first_; w < last_; ++w) row(tight_, g)[w] &= unseen_[w];
        }
        const double lowest = std::min_element(groups_.begin(), groups_.end(), [](auto& a, auto& b) { return a.low < b.low; })->low;
        return *std::max_element(high_.begin(), high_.end()) - lowest <= levels_.beyond();
    }
};

}  // namespace geoattn::GEOATTN_ISA

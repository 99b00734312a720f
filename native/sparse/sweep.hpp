// Distances in edges: breadth first from 64 sources at once, a bit for each.
//
// A source is followed until all of its targets are known. When it takes less time to look back from the targets that are
// missing than to go on, that is done first, and mostly ends the search.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "round.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class Sweep {
  public:
    static constexpr std::int32_t NEVER = -1;

    explicit Sweep(const Job& job) : job_(job), seen_(job.n, 0), now_(job.n, 0), then_(job.n, 0), need_(job.n, 0), slot_(job.n, -1) {}

    // From at most 64 sources to all that is asked of them.
    void find(Round& round, const Source* sources, int count, bool back) {
        ask(round, sources, count);
        go(back ? job_.in : job_.out, back ? job_.out : job_.in, sources, count);
        answer(round, sources, count);
    }

  private:
    const Job& job_;
    std::vector<std::uint64_t> seen_, now_, then_, need_;  // by node
    std::vector<std::int32_t> slot_, targets_, missing_, touched_, active_, reached_;
    std::vector<std::int32_t> when_;  // (targets, 64)
    std::int64_t left_[64];           // targets of each source that are not known
    std::uint64_t alive_ = 0;         // sources with targets that are not known

    void ask(const Round& round, const Source* sources, int count) {
        targets_.clear(), alive_ = 0;
        for (int k = 0; k < count; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << k;
            left_[k] = 0;
            for (std::size_t u = sources[k].first; u < sources[k].last; ++u)
                for (const std::int32_t b : round.uses[u].ask->targets) {
                    if (slot_[b] < 0) slot_[b] = std::int32_t(targets_.size()), targets_.push_back(b);
                    left_[k] += (need_[b] & bit) == 0;
                    need_[b] |= bit;
                }
            if (left_[k] > 0) alive_ |= bit;
        }
        when_.assign(targets_.size() * 64, NEVER);
    }

    void arrive(std::int32_t v, std::uint64_t bits, std::int32_t at) {
        std::uint64_t fresh = bits & need_[v];
        if (fresh == 0) return;
        need_[v] &= ~fresh;
        std::int32_t* line = when_.data() + std::size_t(slot_[v]) * 64;
        for (; fresh != 0; fresh &= fresh - 1) {
            const int k = std::countr_zero(fresh);
            line[k] = at;
            if (--left_[k] == 0) alive_ &= ~(std::uint64_t(1) << k);
        }
    }

    void go(const Rows& edges, const Rows& against, const Source* sources, int count) {
        touched_.clear(), active_.clear();
        missing_ = targets_;
        for (int k = 0; k < count; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << k;
            const std::int32_t v = sources[k].node;
            now_[v] = seen_[v] = bit;  // nodes differ
            touched_.push_back(v), active_.push_back(v);
            arrive(v, bit, 0);
        }
        for (std::int32_t at = 1; alive_ != 0 && !active_.empty(); ++at) {
            std::int64_t onward = 0;
            for (const std::int32_t v : active_) onward += edges.count(v);
            look_back(against, onward, at);
            if (alive_ == 0) break;
            if (2 * onward > edges.start[job_.n]) pull(against, at);
            else push(edges, at);
        }
        for (const std::int32_t v : active_) now_[v] = 0;
        for (const std::int32_t v : touched_) seen_[v] = 0;
        for (const std::int32_t b : targets_) need_[b] = 0;
    }

    // One step from all nodes of the front.
    void push(const Rows& edges, std::int32_t at) {
        reached_.clear();
        for (const std::int32_t v : active_) {
            const std::uint64_t bits = now_[v] & alive_;
            now_[v] = 0;
            if (bits == 0) continue;
            for (std::int64_t e = edges.start[v]; e < edges.start[v + 1]; ++e) {
                const std::int32_t w = edges.column[e];
                const std::uint64_t fresh = bits & ~seen_[w];
                if (fresh == 0) continue;
                if (then_[w] == 0) reached_.push_back(w);
                then_[w] |= fresh;
            }
        }
        active_.swap(reached_);
        for (const std::int32_t w : active_) {
            now_[w] = then_[w], then_[w] = 0;
            if (seen_[w] == 0) touched_.push_back(w);
            seen_[w] |= now_[w];
            arrive(w, now_[w], at);
        }
    }

    // The same when the front is most of the graph: each node looks whom it can come from.
    void pull(const Rows& against, std::int32_t at) {
        active_.clear();
        for (std::int32_t w = 0; w < job_.n; ++w) {
            const std::uint64_t lacks = alive_ & ~seen_[w];
            std::uint64_t bits = 0;
            if (lacks != 0)
                for (std::int64_t e = against.start[w]; e < against.start[w + 1]; ++e) bits |= now_[against.column[e]];
            then_[w] = bits & lacks;
        }
        now_.swap(then_);
        for (std::int32_t w = 0; w < job_.n; ++w) {
            then_[w] = 0;
            if (now_[w] == 0) continue;
            active_.push_back(w);
            if (seen_[w] == 0) touched_.push_back(w);
            seen_[w] |= now_[w];
            arrive(w, now_[w], at);
        }
    }

    // One step for the targets that are missing, from their side, if that is less work.
    void look_back(const Rows& against, std::int64_t onward, std::int32_t at) {
        std::int64_t back = 0;
        std::size_t kept = 0;
        for (const std::int32_t b : missing_)
            if (need_[b] != 0) missing_[kept++] = b, back += against.count(b);
        missing_.resize(kept);
        if (2 * back > onward) return;
        for (const std::int32_t b : missing_) {
            std::uint64_t bits = 0;
            for (std::int64_t e = against.start[b]; (need_[b] & ~bits) != 0 && e < against.start[b + 1]; ++e)
                bits |= now_[against.column[e]];
            arrive(b, bits, at);
        }
    }

    void answer(Round& round, const Source* sources, int count) {
        for (int k = 0; k < count; ++k)
            for (std::size_t u = sources[k].first; u < sources[k].last; ++u) {
                const Ask& ask = *round.uses[u].ask;
                std::int32_t* cell = round.steps.data() + ask.place + round.uses[u].local;
                for (std::size_t t = 0; t < ask.targets.size(); ++t)
                    cell[t * ask.sources.size()] = when_[std::size_t(slot_[ask.targets[t]]) * 64 + k];
            }
        for (const std::int32_t b : targets_) slot_[b] = -1;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

// Distances in edges: breadth first from 64 sources at once, a bit for each.
//
// A source is followed until all of its targets are known. When it takes less time to look back from the targets that are
// missing than to go on, that is done first, and mostly ends the search.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "batch.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class Sweep {
  public:
    static constexpr std::int32_t NEVER = -1;
    std::vector<std::int32_t> steps;  // of each cell of the batch

    explicit Sweep(const Job& job) : job_(job), seen_(job.n, 0), now_(job.n, 0), then_(job.n, 0), need_(job.n, 0), slot_(job.n, -1) {}

    void find(Batch& batch) {
        steps.resize(batch.cells);
        for (const bool back : {false, true})
            batch.each_source(back, [&](const auto& nodes, const auto& start, const auto& uses) {
                in_.assign(batch.count, 0);
                for (std::size_t from = 0; from < nodes.size(); from += 64) {
                    const std::size_t to = std::min(from + 64, nodes.size());
                    ask(batch, from, to, start, uses);
                    go(back ? job_.in : job_.out, back ? job_.out : job_.in, nodes.data() + from, int(to - from));
                    answer(batch, from, to, start, uses);
                }
            });
    }

  private:
    const Job& job_;
    std::vector<std::uint64_t> seen_, now_, then_, need_, in_;  // by node; in_: the bits of each ask
    std::vector<std::int32_t> slot_, targets_, missing_, touched_, active_, reached_, asks_;
    std::vector<std::int32_t> when_;  // (targets, 64)
    std::int64_t left_[64];           // targets of each source that are not known
    std::uint64_t alive_ = 0;

    template <class Starts, class Uses> void ask(const Batch& batch, std::size_t from, std::size_t to, const Starts& start, const Uses& uses) {
        asks_.clear(), targets_.clear();
        for (std::size_t k = from; k < to; ++k)
            for (std::size_t u = start[k]; u < start[k + 1]; ++u) {
                std::uint64_t& in = in_[uses[u].ask];
                if (in == 0) asks_.push_back(uses[u].ask);
                in |= std::uint64_t(1) << (k - from);
            }
        for (const std::int32_t a : asks_)
            for (const std::int32_t b : batch.asks[a].targets) {
                if (slot_[b] < 0) slot_[b] = std::int32_t(targets_.size()), targets_.push_back(b);
                need_[b] |= in_[a];
            }
        when_.resize(std::max(when_.size(), targets_.size() * 64));
        for (int k = 0; k < 64; ++k) left_[k] = 0;
        alive_ = 0;
        for (const std::int32_t b : targets_) {
            std::int32_t* line = when_.data() + std::size_t(slot_[b]) * 64;
            for (std::uint64_t rest = need_[b]; rest != 0; rest &= rest - 1) ++left_[std::countr_zero(rest)], line[std::countr_zero(rest)] = NEVER;
            alive_ |= need_[b];
        }
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

    void go(const Rows& edges, const Rows& against, const std::int32_t* nodes, int count) {
        touched_.clear(), active_.clear();
        missing_ = targets_;
        for (int k = 0; k < count; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << k;
            now_[nodes[k]] = seen_[nodes[k]] = bit;  // nodes differ
            touched_.push_back(nodes[k]), active_.push_back(nodes[k]);
            arrive(nodes[k], bit, 0);
        }
        for (std::int32_t at = 1; alive_ != 0 && !active_.empty(); ++at) {
            look_back(edges, against, at);
            if (alive_ == 0) break;
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
        for (const std::int32_t v : active_) now_[v] = 0;
        for (const std::int32_t v : touched_) seen_[v] = 0;
        for (const std::int32_t b : targets_) need_[b] = 0;
    }

    void look_back(const Rows& edges, const Rows& against, std::int32_t at) {
        std::int64_t onward = 0, back = 0;
        for (const std::int32_t v : active_) onward += edges.count(v);
        std::size_t kept = 0;
        for (const std::int32_t b : missing_)
            if (need_[b] != 0) missing_[kept++] = b, back += against.count(b);
        missing_.resize(kept);
        if (2 * back > onward) return;
        for (const std::int32_t b : missing_) {
            std::uint64_t bits = 0;
            for (std::int64_t e = against.start[b]; (need_[b] & ~bits) != 0 && e < against.start[b + 1]; ++e) bits |= now_[against.column[e]];
            arrive(b, bits, at);
        }
    }

    template <class Starts, class Uses> void answer(const Batch& batch, std::size_t from, std::size_t to, const Starts& start, const Uses& uses) {
        for (std::size_t k = from; k < to; ++k)
            for (std::size_t u = start[k]; u < start[k + 1]; ++u) {
                const Ask& ask = batch.asks[uses[u].ask];
                std::int32_t* cell = steps.data() + ask.place + uses[u].local;
                for (std::size_t t = 0; t < ask.targets.size(); ++t) cell[t * ask.sources.size()] = when_[std::size_t(slot_[ask.targets[t]]) * 64 + (k - from)];
            }
        for (const std::int32_t a : asks_) in_[a] = 0;
        for (const std::int32_t b : targets_) slot_[b] = -1;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

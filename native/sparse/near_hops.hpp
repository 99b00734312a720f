// Distances around an edge of an undirected graph whose edges have one length, where measures live on neighbours: 0 to 3 edges.
//
// The neighbours of the sources are marked, a bit for each source, and a target looks at the marks of itself and of its neighbours.
// Where that would mean to walk through the neighbours of a hub, the few others are looked up among them instead.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "job.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class NearHops {
  public:
    static constexpr int SETS = 2;  // of a target: the sources within 1 edge, and within 2; the others are 3 edges away

    explicit NearHops(const Job& job) : edges_(job.out), seen_(job.n, 0) {}

    // sets: (targets, SETS, words), a bit for each source; slot: by node, its place among the targets, or below 0
    void find(const std::vector<std::int32_t>& sources, const std::vector<std::int32_t>& targets, const std::vector<std::int32_t>& slot,
              std::vector<std::uint64_t>& sets) {
        const std::size_t words = (sources.size() + 63) / 64;
        sets.resize(targets.size() * SETS * words);
        looks_ = 0;
        for (const std::int32_t b : targets) looks_ += edges_.count(b);
        for (std::size_t w = 0; w < words; ++w) {
            const std::int32_t* some = sources.data() + 64 * w;
            const std::size_t count = std::min<std::size_t>(64, sources.size() - 64 * w);
            mark(some, count, slot);
            for (std::size_t t = 0; t < targets.size(); ++t) {
                std::uint64_t* line = sets.data() + t * SETS * words + w;
                look(some, targets[t], line[0], line[words]);
            }
            for (const std::int32_t v : touched_) seen_[v] = 0;
        }
    }

  private:
    const Rows edges_;
    std::vector<std::uint64_t> seen_;
    std::vector<std::int32_t> touched_;
    std::int64_t looks_ = 0;
    std::uint64_t hubs_ = 0, full_ = 0;  // hubs: sources with so many neighbours that it is quicker to look each target up

    void mark(const std::int32_t* some, std::size_t count, const std::vector<std::int32_t>& slot) {
        hubs_ = 0, full_ = ~std::uint64_t(0) >> (64 - count);
        touched_.clear();
        for (std::size_t k = 0; k < count; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << k;
            const std::int32_t a = some[k];
            const auto put = [&](std::int32_t v) {
                if (seen_[v] == 0) touched_.push_back(v);
                seen_[v] |= bit;
            };
            put(a);
            if (edges_.count(a) > 64 && edges_.count(a) > 8 * (looks_ - (slot[a] >= 0 ? edges_.count(a) : 0))) {
                hubs_ |= bit;
                continue;
            }
            for (std::int64_t e = edges_.start[a]; e < edges_.start[a + 1]; ++e) put(edges_.column[e]);
        }
    }

    void look(const std::int32_t* some, std::int32_t b, std::uint64_t& one, std::uint64_t& two) const {
        one = seen_[b];
        for (std::uint64_t rest = hubs_ & ~one; rest != 0; rest &= rest - 1)
            if (has(b, some[std::countr_zero(rest)])) one |= rest & -rest;
        two = one;
        if (edges_.count(b) > 64 && edges_.count(b) > 8 * std::int64_t(touched_.size())) {
            for (std::size_t k = 0; two != full_ && k < touched_.size(); ++k)
                if ((seen_[touched_[k]] & ~two) != 0 && has(b, touched_[k])) two |= seen_[touched_[k]];
        } else {
            for (std::int64_t e = edges_.start[b]; two != full_ && e < edges_.start[b + 1]; ++e) two |= seen_[edges_.column[e]];
        }
        for (std::uint64_t rest = hubs_ & ~two; rest != 0; rest &= rest - 1)
            if (common_neighbour(b, some[std::countr_zero(rest)])) two |= rest & -rest;
    }

    bool has(std::int32_t v, std::int32_t w) const {
        return std::binary_search(edges_.column + edges_.start[v], edges_.column + edges_.start[v + 1], w);
    }
    bool common_neighbour(std::int32_t v, std::int32_t w) const {
        if (edges_.count(v) > edges_.count(w)) std::swap(v, w);
        for (std::int64_t e = edges_.start[v]; e < edges_.start[v + 1]; ++e)
            if (has(w, edges_.column[e])) return true;
        return false;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

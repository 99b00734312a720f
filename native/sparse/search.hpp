// Distances along edges of different lengths: Dijkstra from each source, until all that is asked of it is known.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "radix_heap.hpp"
#include "round.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

constexpr double FAR = std::numeric_limits<double>::infinity();

class Search {
  public:
    explicit Search(const Job& job) : job_(job), length_(job.n, FAR), wanted_(job.n, -1) {
        if (job.upstream) edge_.assign(job.n, -1), before_.assign(job.n, -1);
        bounded_ = job.near && !job.directed;
        if (!bounded_) return;
        longest_.assign(job.n, 0);
        for (std::int32_t v = 0; v < job.n; ++v)
            for (std::int64_t e = job.out.start[v]; e < job.out.start[v + 1]; ++e) longest_[v] = std::max(longest_[v], job.out.value[e]);
    }

    // From one source to all that is asked of it.
    void find(Round& round, const Source& source, bool back) {
        const Rows& edges = back ? job_.in : job_.out;
        std::size_t missing = 0;
        double bound = bounded_ ? 0 : FAR;
        ++round_;
        for (std::size_t u = source.first; u < source.last; ++u) {
            const Ask& ask = *round.uses[u].ask;
            for (const std::int32_t b : ask.targets)
                if (wanted_[b] != round_) wanted_[b] = round_, ++missing;
            // over the owner there is a way to each target: d(a, o) + d(o, b)
            if (bounded_) bound = std::max(bound, (length_between(edges, ask.owner, source.node) + reach(ask)) * (1 + 1e-12));
        }
        walk(edges, source.node, bound, missing);
        for (std::size_t u = source.first; u < source.last; ++u) {
            const Ask& ask = *round.uses[u].ask;
            double* cell = round.lengths.data() + ask.place + round.uses[u].local;
            for (std::size_t t = 0; t < ask.targets.size(); ++t) cell[t * ask.sources.size()] = length_[ask.targets[t]];
        }
        reset();
    }

    // Ways from one node to others, for gradients: use(k, entries of `edges` on the way from the end to the start) for each end.
    template <class Use> void trace(const Rows& edges, std::int32_t from, const std::vector<std::int32_t>& ends, Use use) {
        std::size_t missing = 0;
        ++round_;
        for (const std::int32_t b : ends)
            if (wanted_[b] != round_) wanted_[b] = round_, ++missing;
        walk(edges, from, FAR, missing);
        std::vector<std::int64_t> way;
        for (std::size_t k = 0; k < ends.size(); ++k) {
            way.clear();
            for (std::int32_t v = ends[k]; v != from && before_[v] >= 0; v = before_[v]) way.push_back(edge_[v]);
            use(k, way);
        }
        reset();
    }

  private:
    const Job& job_;
    std::vector<double> length_, longest_;
    std::vector<std::int64_t> edge_, wanted_;
    std::vector<std::int32_t> before_, touched_;
    RadixHeap heap_;
    std::int64_t round_ = 0;
    bool bounded_ = false;

    // How far the targets of an ask are from its owner at most: over the partner, whose measure lives on its neighbours.
    double reach(const Ask& ask) const {
        double most = 0;
        for (const std::int64_t* k = ask.first; k != ask.last; ++k) {
            const std::int32_t q = job_.pairs[2 * *k + (ask.back ? 0 : 1)];
            most = std::max(most, length_between(job_.out, ask.owner, q) + longest_[q]);
        }
        return most;
    }

    static double length_between(const Rows& edges, std::int32_t v, std::int32_t w) {
        if (v == w) return 0;
        const auto* end = edges.column + edges.start[v + 1];
        const auto* found = std::lower_bound(edges.column + edges.start[v], end, w);
        return found != end && *found == w ? edges.value[found - edges.column] : FAR;
    }

    void walk(const Rows& edges, std::int32_t from, double bound, std::size_t missing) {
        heap_.clear(), touched_.clear();
        length_[from] = 0;
        touched_.push_back(from);
        heap_.push(0, from);
        while (!heap_.empty()) {
            const auto [key, v] = heap_.pop();
            if (key > length_[v]) continue;
            if (wanted_[v] == round_ && --missing == 0) break;
            for (std::int64_t e = edges.start[v]; e < edges.start[v + 1]; ++e) {
                const std::int32_t w = edges.column[e];
                const double length = key + edges.value[e];
                if (length >= length_[w] || length > bound) continue;
                if (length_[w] == FAR) touched_.push_back(w);
                length_[w] = length;
                if (!edge_.empty()) edge_[w] = e, before_[w] = v;
                heap_.push(length, w);
            }
        }
    }

    void reset() {
        for (const std::int32_t v : touched_) {
            length_[v] = FAR;
            if (!edge_.empty()) edge_[v] = -1, before_[v] = -1;
        }
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

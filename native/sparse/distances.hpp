// Distances from the nodes of one measure to the nodes that its pairs ask for.
//
// Three ways. Undirected graphs with edges of one length, where the measures live on neighbours: a distance is 0 to 3 edges, so
// the neighbours of the sources are marked, a bit for each source, and a target looks at the marks of itself and of
// its neighbours. Other graphs with edges of one length: breadth first from 64 sources at once, a bit for each. Other lengths:
// Dijkstra from each source. Each search ends when all targets are known, or nothing within the known bound is left.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "job.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

constexpr double FAR = std::numeric_limits<double>::infinity();

class Distances {
  public:
    std::vector<std::int32_t> sources, targets;  // filled by the caller; the first source is the owner of the pairs
    std::vector<std::uint8_t> hops;              // (targets, sources) if `few_hops`
    std::vector<double> lengths;                 // (targets, sources) otherwise

    explicit Distances(const Job& job)
        : job_(job), slot_(job.n, -1), few_hops_(job.hop > 0 && job.near && !job.directed && !job.upstream) {
        if (job.hop > 0) seen_.assign(job.n, 0);
        if (job.hop > 0 && !few_hops_) now_.assign(job.n, 0), then_.assign(job.n, 0);
        if (job.hop == 0 || job.upstream) length_.assign(job.n, FAR);
        if (job.upstream) edge_.assign(job.n, -1), before_.assign(job.n, -1);
    }

    bool few_hops() const { return few_hops_; }
    int slot(std::int32_t node) const { return slot_[node]; }

    bool add_target(std::int32_t node) {
        if (slot_[node] >= 0) return false;
        slot_[node] = int(targets.size());
        targets.push_back(node);
        return true;
    }
    void forget_targets() {
        for (const std::int32_t b : targets) slot_[b] = -1;
        targets.clear();
    }

    double get(int source, int slot) const {
        const std::size_t place = std::size_t(slot) * sources.size() + source;
        return few_hops_ ? job_.hop * hops[place] : lengths[place];
    }

    // `edges`: along which to search, from the sources
    void find(const Rows& edges) {
        if (few_hops_) {
            hops.resize(targets.size() * sources.size());
            for (std::size_t from = 0; from < sources.size(); from += 64) mark(from, std::min(from + 64, sources.size()));
            return;
        }
        lengths.assign(targets.size() * sources.size(), FAR);
        if (job_.hop > 0) {
            for (std::size_t from = 0; from < sources.size(); from += 64) sweep(edges, from, std::min(from + 64, sources.size()));
            return;
        }
        double bound = FAR, widest = 0;
        for (std::size_t k = 0; k < sources.size(); ++k) {
            // over the owner there is a way to each target: d(a, o) + d(o, b)
            if (k > 0 && job_.near && !job_.directed) bound = (length_between(edges, sources[0], sources[k]) + widest) * (1 + 1e-12);
            search(edges, sources[k], bound, targets.size(), [&](std::int32_t v) { return slot_[v] >= 0; });
            for (std::size_t t = 0; t < targets.size(); ++t) lengths[t * sources.size() + k] = length_[targets[t]];
            if (k == 0)
                for (const std::int32_t b : targets) widest = std::max(widest, length_[b]);
            reset();
        }
    }

    // Ways from one node to others, for gradients: use(b, entries of `edges` on the way from the end to the start) for each end.
    template <class Use> void trace(const Rows& edges, std::int32_t from, const std::vector<std::int32_t>& ends, Use use) {
        std::vector<std::int32_t> wanted(ends);
        std::sort(wanted.begin(), wanted.end());
        wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        search(edges, from, FAR, wanted.size(), [&](std::int32_t v) { return std::binary_search(wanted.begin(), wanted.end(), v); });
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
    std::vector<std::int32_t> slot_;
    const bool few_hops_;
    std::vector<std::uint64_t> seen_, now_, then_;
    std::vector<double> length_;
    std::vector<std::int64_t> edge_;
    std::vector<std::int32_t> before_, touched_, active_, reached_;
    struct Entry { double key; std::int32_t node; };
    std::vector<Entry> heap_;
    std::vector<std::pair<std::int32_t, std::uint64_t>> open_;

    static double length_between(const Rows& edges, std::int32_t v, std::int32_t w) {
        if (v == w) return 0;
        const auto* end = edges.column + edges.start[v + 1];
        const auto* found = std::lower_bound(edges.column + edges.start[v], end, w);
        return found != end && *found == w ? edges.value[found - edges.column] : FAR;
    }

    static bool has(const Rows& edges, std::int32_t v, std::int32_t w) {
        return std::binary_search(edges.column + edges.start[v], edges.column + edges.start[v + 1], w);
    }
    bool common_neighbour(std::int32_t v, std::int32_t w) const {
        const Rows& edges = job_.out;
        if (edges.count(v) > edges.count(w)) std::swap(v, w);
        for (std::int64_t e = edges.start[v]; e < edges.start[v + 1]; ++e)
            if (has(edges, w, edges.column[e])) return true;
        return false;
    }

    void mark(std::size_t from, std::size_t to) {
        const Rows& edges = job_.out;
        std::uint64_t hubs = 0;  // sources with so many neighbours that it is quicker to look each target up
        std::int64_t looks = 0;
        for (const std::int32_t b : targets) looks += edges.count(b);
        touched_.clear();
        for (std::size_t k = from; k < to; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << (k - from);
            const std::int32_t a = sources[k];
            const auto put = [&](std::int32_t v) {
                if (seen_[v] == 0) touched_.push_back(v);
                seen_[v] |= bit;
            };
            put(a);
            if (edges.count(a) > 64 && edges.count(a) > 8 * (looks - (slot_[a] >= 0 ? edges.count(a) : 0))) {
                hubs |= bit;
                continue;
            }
            for (std::int64_t e = edges.start[a]; e < edges.start[a + 1]; ++e) put(edges.column[e]);
        }
        const std::uint64_t full = to - from == 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << (to - from)) - 1;
        for (std::size_t t = 0; t < targets.size(); ++t) {
            const std::int32_t b = targets[t];
            std::uint64_t one = seen_[b], two;
            for (std::uint64_t rest = hubs & ~one; rest != 0; rest &= rest - 1)
                if (has(edges, b, sources[from + std::countr_zero(rest)])) one |= rest & -rest;
            two = one;
            if (edges.count(b) > 64 && edges.count(b) > 8 * std::int64_t(touched_.size())) {
                for (std::size_t k = 0; two != full && k < touched_.size(); ++k)
                    if ((seen_[touched_[k]] & ~two) != 0 && has(edges, b, touched_[k])) two |= seen_[touched_[k]];
            } else {
                for (std::int64_t e = edges.start[b]; two != full && e < edges.start[b + 1]; ++e) two |= seen_[edges.column[e]];
            }
            for (std::uint64_t rest = hubs & ~two; rest != 0; rest &= rest - 1)
                if (common_neighbour(b, sources[from + std::countr_zero(rest)])) two |= rest & -rest;
            std::uint8_t* line = hops.data() + t * sources.size();
            for (std::size_t k = from; k < to; ++k)
                line[k] = sources[k] == b ? 0 : std::uint8_t(3 - (one >> (k - from) & 1) - (two >> (k - from) & 1));
        }
        for (const std::int32_t v : touched_) seen_[v] = 0;
    }

    // If one more step reaches all targets, and it takes less time to look back from them than to go on: take it.
    template <class Arrive> bool last_step(const Rows& edges, const Rows& against, std::uint64_t full, Arrive arrive) {
        std::int64_t onward = 0, back = 0;
        for (const std::int32_t v : active_) onward += edges.count(v);
        open_.clear();
        for (const std::int32_t b : targets) {
            if (seen_[b] == full) continue;
            open_.push_back({b, 0});
            if ((back += against.count(b)) * 2 > onward) return false;
        }
        for (auto& [b, bits] : open_) {
            for (std::int64_t e = against.start[b]; bits != (full & ~seen_[b]) && e < against.start[b + 1]; ++e)
                bits |= now_[against.column[e]] & ~seen_[b];
            if ((bits | seen_[b]) != full) return false;
        }
        for (const auto& [b, bits] : open_) arrive(b, bits);
        return true;
    }

    void sweep(const Rows& edges, std::size_t from, std::size_t to) {
        const Rows& against = &edges == &job_.in ? job_.out : job_.in;
        touched_.clear(), active_.clear();
        std::size_t missing = targets.size() * (to - from);
        const auto arrive = [&](std::int32_t v, std::uint64_t bits, int steps) {
            if (seen_[v] == 0) touched_.push_back(v);
            seen_[v] |= bits;
            if (slot_[v] < 0) return;
            double* line = lengths.data() + std::size_t(slot_[v]) * sources.size() + from;
            missing -= std::size_t(std::popcount(bits));
            for (; bits != 0; bits &= bits - 1) line[std::countr_zero(bits)] = job_.hop * steps;
        };
        for (std::size_t k = from; k < to; ++k) {
            const std::uint64_t bit = std::uint64_t(1) << (k - from);
            now_[sources[k]] = bit;  // sources differ
            arrive(sources[k], bit, 0);
            active_.push_back(sources[k]);
        }
        const std::uint64_t full = to - from == 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << (to - from)) - 1;
        for (int steps = 1; missing > 0 && !active_.empty(); ++steps) {
            if (last_step(edges, against, full, [&](std::int32_t b, std::uint64_t bits) { arrive(b, bits, steps); })) break;
            reached_.clear();
            for (const std::int32_t v : active_) {
                const std::uint64_t bits = now_[v];
                now_[v] = 0;
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
                now_[w] = then_[w];
                then_[w] = 0;
                arrive(w, now_[w], steps);
            }
        }
        for (const std::int32_t v : active_) now_[v] = 0;
        for (const std::int32_t v : touched_) seen_[v] = 0;
    }

    template <class Wanted> void search(const Rows& edges, std::int32_t from, double bound, std::size_t missing, Wanted wanted) {
        const auto later = [](const Entry& a, const Entry& b) { return a.key > b.key || (a.key == b.key && a.node > b.node); };
        heap_.clear(), touched_.clear();
        length_[from] = 0;
        touched_.push_back(from);
        heap_.push_back({0, from});
        while (!heap_.empty() && missing > 0) {
            std::pop_heap(heap_.begin(), heap_.end(), later);
            const Entry top = heap_.back();
            heap_.pop_back();
            const std::int32_t v = top.node;
            if (top.key > length_[v]) continue;
            if (wanted(v)) --missing;
            for (std::int64_t e = edges.start[v]; e < edges.start[v + 1]; ++e) {
                const std::int32_t w = edges.column[e];
                const double length = top.key + edges.value[e];
                if (length >= length_[w] || length > bound) continue;
                if (length_[w] == FAR) touched_.push_back(w);
                length_[w] = length;
                if (!edge_.empty()) edge_[w] = e, before_[w] = v;
                heap_.push_back({length, w});
                std::push_heap(heap_.begin(), heap_.end(), later);
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

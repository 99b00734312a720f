// One connected part of a graph, and all that its transport problems share: lengths, distances, shortest ways, and rough
// copies of lengths and distances in 16 bits.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <tuple>

#include "bit_sets.hpp"
#include "levels.hpp"
#include "row_paths.hpp"
#include "shortest_paths.hpp"
#include "simd_int16.hpp"

namespace geoattn::GEOATTN_ISA {

struct Network {
    int n = 0;
    bool directed = false;
    std::vector<int> members;      // members[k]: one node of the graph in class k; of a part of a network, a class of the whole
    std::vector<double> merged;    // lengths between classes, where some hold several nodes
    Lengths lengths;               // of all edges
    Row<std::uint16_t> via;        // via[u * n + v]: the class before v on a shortest way from u
    Row<double> stored;            // distances; empty in very long maps, where they are summed along the way
    int most_hops = 1;             // of all shortest ways
    double reach = 0;              // the longest distance

    // Rough copies: sixteen lengths are one vector. Potentials lie within 1.5 `reach` of zero, or the copies are not looked at,
    // so that no sum of a length and two of them overflows. What is no edge, or not across the cut, comes to more than
    // ROUGH_NONE; a length and two potentials, each off by half a unit, may hide an edge shorter by ROUGH_ERROR.
    static constexpr int ROUGH_REACH = 10000, ROUGH_MOST = 15000, ROUGH_ERROR = 3, ROUGH_NONE = 17000;
    int vectors = 0, stride = 0;  // of a row: vectors of sixteen, and entries
    double rough_scale = 1;
    Row<std::int16_t> rough_out, rough_in;    // lengths of essential edges from a class, and to it
    Row<std::int16_t> rough_to, rough_from;   // distances from a class, and to it; of undirected graphs the same, once

    const Network* longer = nullptr;          // of the first classes of a network: that network (prefix_network.hpp)
    const Network* whole = nullptr;           // of a part: its edges are the distances of the whole
    const std::int16_t* part_rows[2] = {};    // of a part: rough distances to a class and from it

    int few = 0;  // on so many classes a pair is solved first
    static constexpr int NEAR = 8;
    std::vector<std::uint16_t> near;  // near[v * NEAR + k]: the k-th nearest class to v
    bool halved = false;              // many edges are essential: what is near is not that near
    bool by_roles = false;            // ... and so many that pairs are solved on distances from givers to takers
    Levels levels;                    // where few distances differ

    template <bool PART> const std::int16_t* rough(bool outward) const {
        if constexpr (PART) return part_rows[outward];
        return (outward || !directed ? rough_out : rough_in).data();
    }
    template <bool PART> const std::int16_t* between(bool outward) const {
        if constexpr (PART) return part_rows[outward];
        return (outward || !directed ? rough_to : rough_from).data();
    }

    double distance(int u, int v) const {
        if (!stored.empty()) return stored[std::size_t(u) * n + v];
        if (longer) return longer->distance(u, v);
        return along(u, v, [&](int a, int b) { return lengths(a, b); });
    }

    double given_way(int u, int v) const {  // the given length of the way that is shortest by shortened ones
        if (longer) return longer->given_way(u, v);
        return along(u, v, [&](int a, int b) { return lengths.given(a, b); });
    }

    // By the given lengths: along a shortest way, or along one that shortened lengths cannot tell from it.
    double given_distance(int u, int v) const {
        const double way = given_way(u, v);
        if (stored.empty() || u == v || !(way < INF)) return way;
        const double limit = distance(u, v) * (1 + 4 * Lengths::SHARE), *behind = &stored[std::size_t(u) * n];
        const double* ahead = &stored[directed ? std::size_t(v) : std::size_t(v) * n];
        struct Place {
            double behind;
            int node;
            double found;
        };
        static thread_local std::vector<Place> places;  // the nodes on such ways, by their distance from u
        places.clear();
        const auto look = [&](int from, int end) {
            for (int k = from; k < end; ++k)
                if (behind[k] + ahead[directed ? std::size_t(k) * n : k] <= limit && k != u && k != v)
                    places.push_back({behind[k], k, 0.0});
        };
        if (directed) look(0, n);
        for (int k = 0; !directed && k < n; k += 8) {  // eight at a time: few are on such ways
            const int end = std::min(k + 8, n);
            double least = INF;
            for (int i = k; i < end; ++i) least = behind[i] + ahead[i] < least ? behind[i] + ahead[i] : least;
            if (least <= limit) look(k, end);
        }
        std::sort(places.begin(), places.end(),
                  [](const Place& a, const Place& b) { return std::tie(a.behind, a.node) < std::tie(b.behind, b.node); });
        places.push_back({INF, v, 0.0});
        for (Place& place : places) {
            place.found = lengths.given(u, place.node);
            for (const Place* p = places.data(); p < &place; ++p)
                place.found = std::min(place.found, p->found + lengths.given(p->node, place.node));
        }
        return std::min(way, places.back().found);
    }

    template <class Length> double along(int u, int v, Length length) const {
        double sum = 0;
        const std::uint16_t* before = via.data() + std::size_t(u) * n;  // a single class has no ways
        for (int hops = 0; v != u; v = before[v], ++hops) {
            sum += length(before[v], v);
            if (hops > n) return INF;
        }
        return sum;
    }

    template <bool PART> double reach_of(int u, int v) const {
        if constexpr (PART) return whole->distance(members[u], members[v]);
        return distance(u, v);
    }

    // What joins two classes: an edge, or in a part any shortest way.
    template <bool PART> double link(int u, int v) const {
        if constexpr (PART) return whole->distance(members[u], members[v]);
        return lengths(u, v);
    }

    // Rows of short maps come in few sizes, each with code of its own; above FIXED classes they are as long as they must be, and an
    // odd number of vectors: columns of rows a power of two apart share a few lines of the cache. From one size to the next a pair
    // takes at most a fifth longer.
    static constexpr int FIXED = 528;
    static int vectors_of(int n) {
        if (n <= 257) return n <= 32 ? 2 : n <= 65 ? 5 : n <= 129 ? 9 : n <= 208 ? 13 : 17;
        return n <= 336 ? 21 : n <= FIXED ? (n + 47) / 64 * 4 + 1 : (n + 15) / 16 | 1;
    }

    // Classes. Above STORED distances are not found as n^2 doubles, above KEPT they are not kept beside what is made of them.
    static constexpr int STORED = 16384, KEPT = 4096;
    static constexpr int ROLES = 256;  // shorter maps are solved on their edges alone

    static int stage_size(int n, int wanted) { return std::min(wanted, n <= 336 ? 65 : n <= FIXED ? 129 : n); }

    void prepare(Crew& crew, const Stop& stop) {
        find_ways(crew, stop);
        if (stop.asked()) return;
        vectors = vectors_of(n);
        stride = 16 * vectors;
        rough_scale = reach > 1e-300 ? ROUGH_REACH / reach : 1.0;
        make_rough(crew);
        std::atomic<std::int64_t> edges{0};
        crew.each_block(n, [&](int from, int end) {
            std::int64_t own = 0;
            for (int u = from; u < end; ++u)
                for (int v = 0; v < n; ++v) own += rough_out[std::size_t(u) * stride + v] < 32767;
            edges += own;
        });
        const std::int64_t count = edges / 2;
        // Measured: fewer edges do not repay it. Where nearly all ways lead over one node the start tree is nearly optimal by itself.
        if (count >= (n <= 65 ? 1500 : 500) && count >= 5 * n) few = n / (count < 8 * n ? 5 : 3);
        few = stage_size(n, few);
        halved = count * 8 >= std::int64_t(n) * n;
        by_roles = halved && n > ROLES;
        if (few && n > 65) find_near(crew);
        if (n <= KEPT) levels = Levels(stored.data(), lengths, reach);
        std::vector<float>().swap(stored_float_);
        if (n > KEPT) Row<double>().swap(stored);
    }

    void find_near(Crew& crew) {
        near.resize(std::size_t(n) * NEAR);
        crew.each_block(n, [&](int from, int end) {
            for (int v = from; v < end; ++v) {
                const std::int16_t* row = &rough_to[std::size_t(v) * stride];
                std::uint16_t* own = &near[std::size_t(v) * NEAR];
                std::int16_t far[NEAR];  // how far they are
                int count = 0;
                for (int u = 0; u < n; ++u) {
                    const std::int16_t apart = row[u];
                    if (u == v || (count == NEAR && apart >= far[NEAR - 1])) continue;
                    int at = count < NEAR ? count++ : NEAR - 1;
                    for (; at > 0 && far[at - 1] > apart; --at) far[at] = far[at - 1], own[at] = own[at - 1];
                    far[at] = apart;
                    own[at] = std::uint16_t(u);
                }
            }
        });
    }

  private:
    std::vector<float> stored_float_;  // where `stored` is empty: until the rough copies are made

    // Up to so many classes whole rows are quicker than lists (Floyd and Warshall).
    static constexpr int TINY = 128, SHORT = 640;

    // Floyd and Warshall. The last node that shortened the way between two others lies on it, which gives the ways themselves.
    void find_short_ways() {
        const std::size_t size = std::size_t(n);
        std::vector<double> between(size * n, -1.0);  // such a node, -1 where the edge is the way
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) stored[u * size + v] = u == v ? 0.0 : lengths(u, v);
        for (int k = 0; k < n; ++k)
            for (int u = 0; u < n; ++u)
                if (const double base = stored[u * size + k]; u != k && base < INF)
                    relax_through(&stored[u * size], &between[u * size], base, &stored[k * size], k, n);
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) {
                int before = u;  // the ways over the last node, the last node between it and v, and so on
                for (int hops = 0, k; hops < n && (k = int(between[before * size + v])) >= 0; ++hops) before = k;
                via[u * size + v] = std::uint16_t(before);
            }
    }

    bool find_row_ways(Crew& crew, const Stop& stop) {
        Row<std::uint16_t> between(std::size_t(n) * n);
        RowPaths paths(lengths, stored.data(), between.data(), crew, stop);
        if (!paths.find() || stop.asked()) return false;
        paths.write_ways(via.data());
        return true;
    }

    // The longest distance, and the most edges of a way.
    void measure_ways(Crew& crew) {
        std::mutex mutex;
        crew.each_block(n, [&](int from, int end) {
            std::vector<int> hops(n), open;
            double farthest = 0;
            int most = 1;
            for (int u = from; u < end; ++u) {
                const double* row = &stored[std::size_t(u) * n];
                const std::uint16_t* before = via.data() + std::size_t(u) * n;
                std::fill(hops.begin(), hops.end(), 0);
                for (int v = 0; v < n; ++v) {
                    if (v == u || !(row[v] < INF)) continue;
                    farthest = row[v] > farthest ? row[v] : farthest;
                    int at = v;
                    for (open.clear(); at != u && !hops[at]; at = before[at]) open.push_back(at);
                    for (int count = at == u ? 0 : hops[at]; !open.empty(); open.pop_back()) hops[open.back()] = ++count;
                    most = std::max(most, hops[v]);
                }
            }
            std::lock_guard lock(mutex);
            reach = std::max(reach, farthest);
            most_hops = std::max(most_hops, most);
        });
    }

    // Every step back comes nearer, so that every way ends. Rounding may hide that: such rows are searched.
    void repair_ways() {
        const std::size_t size = std::size_t(n);
        std::optional<PathSearch> search;
        std::optional<PathSearch::Search> found;
        Crew alone(1);
        const Stop never;
        for (int u = 0; u < n; ++u) {
            double* row = &stored[u * size];
            std::uint16_t* own = &via[u * size];
            bool nearer = true;
            for (int v = 0; v < n; ++v) nearer &= v == u || !(row[v] < INF) || row[own[v]] < row[v];
            if (nearer) continue;
            if (!search) search.emplace(lengths, directed, alone, never), found.emplace(n);
            search->from(u, *found);
            std::copy(found->distance.begin(), found->distance.end(), row);
            std::copy(found->via.begin(), found->via.end(), own);
        }
    }

    void find_ways(Crew& crew, const Stop& stop) {
        const bool exact = n <= STORED;
        const std::size_t area = std::size_t(n) * n;
        via.resize(area);
        if (exact) stored.resize(area);
        else stored_float_.resize(area);
        const bool by_rows = exact && !directed && n > TINY && find_row_ways(crew, stop);
        if (stop.asked()) return;
        if (by_rows || n <= SHORT) {
            if (!by_rows) find_short_ways();
            repair_ways();
            measure_ways(crew);
            return;
        }
        const PathSearch search(lengths, directed, crew, stop);
        std::mutex mutex;
        crew.each_block(n, [&](int from, int end) {
            PathSearch::Search s(n);
            double farthest = 0;
            for (int u = from; u < end && !stop.asked(); ++u) {
                search.from(u, s);
                const std::size_t row = std::size_t(u) * n;
                for (int v = 0; v < n; ++v) {
                    via[row + v] = std::uint16_t(s.via[v]);
                    farthest = s.distance[v] < INF && s.distance[v] > farthest ? s.distance[v] : farthest;
                }
                if (exact) std::copy_n(s.distance.data(), n, &stored[row]);
                else std::copy_n(s.distance.data(), n, &stored_float_[row]);
            }
            std::lock_guard lock(mutex);
            reach = std::max(reach, farthest);
            most_hops = std::max(most_hops, s.most_hops);
        });
    }

    void make_rough(Crew& crew) {
        const std::size_t size = std::size_t(n) * stride;
        rough_out.assign(size, 32767);
        rough_to.assign(size, 32767);
        if (directed) rough_in.assign(size, 32767), rough_from.assign(size, 32767);
        const bool exact = !stored.empty();
        // An edge that a way beats by less than this is kept: rounding, and shortened lengths, might have made the difference.
        const double margin = 1 + (exact ? 4 * Lengths::SHARE : 1e-6);
        crew.each_block(n, [&](int from, int end) {
            Row<double> row(padded(n), INF), edge(padded(n), INF);
            for (int u = from; u < end; ++u) {
                const std::size_t at = std::size_t(u) * n;
                for (int v = 0; v < n; ++v) {
                    row[v] = exact ? stored[at + v] : double(stored_float_[at + v]);
                    const double length = lengths(u, v);
                    edge[v] = length <= row[v] * margin && u != v ? length : INF;
                }
                round_lengths(row.data(), rough_scale, padded(n), &rough_to[std::size_t(u) * stride]);
                round_lengths(edge.data(), rough_scale, padded(n), &rough_out[std::size_t(u) * stride]);
            }
        });
        if (!directed) return;
        crew.each_block(n, [&](int from, int end) {
            for (int u = 0; u < n; ++u)
                for (int v = from; v < end; ++v) {
                    rough_in[std::size_t(v) * stride + u] = rough_out[std::size_t(u) * stride + v];
                    rough_from[std::size_t(v) * stride + u] = rough_to[std::size_t(u) * stride + v];
                }
        });
    }
};

}  // namespace geoattn::GEOATTN_ISA

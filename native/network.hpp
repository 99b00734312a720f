// One connected part of a graph, and all that its transport problems share: lengths, distances, shortest ways, and rough
// copies of lengths and distances in 16 bits.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "bit_sets.hpp"
#include "shortest_paths.hpp"
#include "simd_int16.hpp"

namespace geoattn::GEOATTN_ISA {

struct Network {
    int n = 0;
    bool directed = false;
    std::vector<int> members;      // members[k]: one node of the graph in class k; of a part of a network, a class of the whole
    std::vector<double> merged;    // lengths between classes, where some hold several nodes
    Lengths lengths;               // of all edges
    std::vector<std::uint16_t> via;  // via[u * n + v]: the class before v on a shortest way from u
    std::vector<double> stored;      // distances; empty in very long maps, where they are summed along the way
    std::vector<std::uint32_t> zeros;  // for sums over `stored` as it is
    int most_hops = 1;               // of all shortest ways
    double reach = 0;                // the longest distance

    // Rough copies: sixteen lengths are one vector. Potentials lie within 1.5 `reach` of zero, or the copies are not looked at,
    // so that no sum of a length and two of them overflows. What is no edge, or not across the cut, comes to more than
    // ROUGH_NONE; a length and two potentials, each off by half a unit, may hide an edge shorter by ROUGH_ERROR.
    static constexpr int ROUGH_REACH = 10000, ROUGH_MOST = 15000, ROUGH_ERROR = 3, ROUGH_NONE = 17000;
    int vectors = 0, stride = 0;  // of a row: vectors of sixteen, and entries
    double rough_scale = 1;
    Row<std::int16_t> rough_out, rough_in;    // lengths of essential edges from a class, and to it
    Row<std::int16_t> rough_to, rough_from;   // distances from a class, and to it; of undirected graphs the same, once

    const Network* whole = nullptr;           // of a part: its edges are the distances of the whole
    const std::int16_t* part_rows[2] = {};    // of a part: rough distances to a class and from it

    int few = 0;  // on so many classes a pair is solved first
    static constexpr int NEAR = 8;
    std::vector<std::uint16_t> near;  // near[v * NEAR + k]: the k-th nearest class to v
    bool halved = false;              // many edges are essential: what is near is not that near

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
        return along(u, v, [&](int a, int b) { return lengths(a, b); });
    }

    // By the given lengths: of short maps the least sum there is, else summed along a shortest way.
    double given_distance(int u, int v) const {
        if (!stored_given_.empty()) return stored_given_[std::size_t(u) * n + v];
        return along(u, v, [&](int a, int b) { return lengths.given(a, b); });
    }

    template <class Length> double along(int u, int v, Length length) const {
        double sum = 0;
        const std::uint16_t* before = &via[std::size_t(u) * n];
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

    static constexpr int STORED = 4096;  // classes: above, n^2 doubles are too much memory

    void prepare(Crew& crew, const Stop& stop) {
        find_ways(crew, stop);
        if (stop.asked()) return;
        vectors = n <= 32 ? 2 : n <= 65 ? 5 : n <= 129 ? 9 : n <= 208 ? 13 : n <= 257 ? 17 : (n + 15) / 16;
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
        // Measured: fewer edges do not repay it.
        if (count >= (n <= 65 ? 1500 : 500)) few = n / (count < 8 * n ? 5 : 3);
        if (n <= 257) few = std::min(few, 65);
        halved = count * 8 >= std::int64_t(n) * n;
        if (few && n > 65) find_near(crew);
        std::vector<float>().swap(stored_float_);
    }

  private:
    std::vector<double> stored_given_;  // of short maps
    std::vector<float> stored_float_;  // where `stored` is empty: until the rough copies are made

    // Below this many classes whole rows are quicker than lists (Floyd and Warshall).
    static constexpr int SHORT = 512;

    void find_short_ways() {
        const std::size_t size = std::size_t(n);
        zeros.assign(n, 0);
        stored.resize(size * n);
        via.resize(size * n);
        std::vector<double> before(size * n);
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) stored[u * size + v] = u == v ? 0.0 : lengths(u, v), before[u * size + v] = u;
        for (int k = 0; k < n; ++k)
            for (int u = 0; u < n; ++u)
                if (const double base = stored[u * size + k]; u != k && base < INF)
                    relax_through(&stored[u * size], &before[u * size], base, &stored[k * size], &before[k * size], n);
        stored_given_.resize(size * n);
        std::vector<double> unused(n);
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) stored_given_[u * size + v] = u == v ? 0.0 : lengths.given(u, v);
        for (int k = 0; k < n; ++k)
            for (int u = 0; u < n; ++u)
                if (const double base = stored_given_[u * size + k]; u != k && base < INF)
                    relax_through(&stored_given_[u * size], unused.data(), base, &stored_given_[k * size], unused.data(), n);
        std::optional<PathSearch> search;
        std::optional<PathSearch::Search> found;
        Crew alone(1);
        const Stop never;
        for (int u = 0; u < n; ++u) {
            double *row = &stored[u * size], *own = &before[u * size];
            bool nearer = true;  // every step back comes nearer, so that every way ends; rounding may hide that
            for (int v = 0; v < n; ++v) nearer &= v == u || !(row[v] < INF) || row[std::size_t(own[v])] < row[v];
            if (!nearer) {
                if (!search) search.emplace(lengths, directed, alone, never), found.emplace(n);
                search->from(u, *found);
                std::copy(found->distance.begin(), found->distance.end(), row);
                std::copy(found->via.begin(), found->via.end(), own);
                most_hops = std::max(most_hops, found->most_hops);
            }
            for (int v = 0; v < n; ++v) {
                via[u * size + v] = std::uint16_t(own[v]);
                if (row[v] < INF) reach = std::max(reach, row[v]);
            }
        }
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) {
                if (!(stored[u * size + v] < INF)) continue;
                int hops = 0;
                for (int at = v; at != u; at = via[u * size + at]) ++hops;
                most_hops = std::max(most_hops, hops);
            }
    }

    void find_ways(Crew& crew, const Stop& stop) {
        if (n <= SHORT) return find_short_ways();
        const PathSearch search(lengths, directed, crew, stop);
        const bool exact = n <= STORED;
        const std::size_t area = std::size_t(n) * n;
        via.resize(area);
        zeros.assign(n, 0);
        if (exact) stored.resize(area);
        else stored_float_.resize(area);
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

    void find_near(Crew& crew) {
        near.resize(std::size_t(n) * NEAR);
        crew.each_block(n, [&](int from, int end) {
            std::vector<std::uint16_t> others;
            for (int v = from; v < end; ++v) {
                const std::int16_t* row = &rough_to[std::size_t(v) * stride];
                others.clear();
                for (int u = 0; u < n; ++u)
                    if (u != v) others.push_back(std::uint16_t(u));
                std::partial_sort_copy(others.begin(), others.end(), &near[std::size_t(v) * NEAR], &near[std::size_t(v) * NEAR] + NEAR,
                                       [&](int a, int b) { return row[a] < row[b]; });
            }
        });
    }
};

}  // namespace geoattn::GEOATTN_ISA

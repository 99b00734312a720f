// Lengths -> distances -> the small network that the transport problems run on.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "certificate.hpp"
#include "parallel.hpp"
#include "sixteen.hpp"

namespace geoattn::GEOATTN_ISA {

// A square matrix whose rows are padded with infinity.
struct Matrix {
    int n = 0, stride = 0;
    Row<double> data;
    Matrix() = default;
    explicit Matrix(int n) : n(n), stride(padded(n)), data(std::size_t(n) * stride, INF) {}
    double* operator[](int i) { return &data[std::size_t(i) * stride]; }
    const double* operator[](int i) const { return &data[std::size_t(i) * stride]; }
};

// Floyd-Warshall on the upper triangle: a symmetric matrix stays symmetric from step to step, to the bit.
inline void all_pairs_upper(Matrix& d, const Stop& stop) {
    Row<double> through(d.stride, INF);
    for (int k = 0; k < d.n && !stop.asked(); ++k) {
        for (int i = 0; i < k; ++i) through[i] = d[i][k];
        std::copy(d[k] + k, d[k] + d.stride, through.begin() + k);
        int i = 0;
        for (; i + 4 <= d.n; i += 4) relax_four(d[i] + i, d.stride, through.data() + i, through.data() + i, d.stride - i);
        for (const int from = i; i < d.n; ++i) relax(d[i] + from, through[i], through.data() + from, d.stride - from);
    }
    for (int i = 0; i < d.n; ++i)
        for (int j = 0; j < i; ++j) d[i][j] = d[j][i];
}

// Floyd-Warshall in place, in float64 with no threshold: an edge of 1e-300 counts. Tiles keep large graphs in cache.
inline void all_pairs(Matrix& d, bool directed, Crew& crew, const Stop& stop) {
    const int n = d.n;
    for (int i = 0; i < n; ++i) d[i][i] = 0;
    if (n <= 512 && !directed) return all_pairs_upper(d, stop);
    const int tile = n <= 512 ? n : 128, tiles = (n + tile - 1) / tile;
    // relax rows of tile I, columns of tile J, through the nodes of tile K
    auto relax_tile = [&](int I, int J, int K) {
        if (stop.asked()) return;
        const int j0 = J * tile, width = std::min(d.stride, j0 + tile) - j0;
        for (int k = K * tile; k < std::min(n, (K + 1) * tile); ++k)
            for (int i = I * tile; i < std::min(n, (I + 1) * tile); ++i)
                if (d[i][k] < INF) relax(d[i] + j0, d[i][k], d[k] + j0, width);
    };
    for (int K = 0; K < tiles; ++K) {
        relax_tile(K, K, K);
        if (tiles == 1) break;
        crew.each(2 * tiles, [&](int t) {
            const int other = t / 2;
            if (other == K) return;
            if (t % 2) relax_tile(K, other, K);
            else relax_tile(other, K, K);
        });
        crew.each(tiles, [&](int I) {
            if (I == K) return;
            for (int J = 0; J < tiles; ++J)
                if (J != K) relax_tile(I, J, K);
        });
    }
    if (!directed)  // sums in another order may differ in the last bit
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < i; ++j) d[i][j] = d[j][i] = std::min(d[i][j], d[j][i]);
}

// The shortest edges of each row, in blocks of growing length. In a long map a search across a cut would read hundreds of
// kilobytes, nearly all of it for edges far too long to become tight.
struct ShortEdges {
    static constexpr int FROM = 1024;  // classes: below, whole rows are quicker
    static constexpr int BLOCK = 64, BLOCKS = 8, WIDTH = BLOCK * BLOCKS;
    Row<float> lengths;
    Row<std::int32_t> columns;
    Row<float> rest;  // rest[r * BLOCKS + b]: the shortest edge of row r beyond its blocks 0 to b

    bool empty() const { return rest.empty(); }

    void fill(const Row<float>& matrix, int n, int stride, Crew& crew) {
        lengths.resize(std::size_t(n) * WIDTH);
        columns.resize(std::size_t(n) * WIDTH);
        rest.resize(std::size_t(n) * BLOCKS);
        crew.each(n, [&](int r) {
            const float* row = &matrix[std::size_t(r) * stride];
            std::vector<std::int32_t> order(n);
            std::iota(order.begin(), order.end(), 0);
            const auto shorter = [&](int a, int b) { return row[a] < row[b]; };
            std::nth_element(order.begin(), order.begin() + WIDTH, order.end(), shorter);
            std::sort(order.begin(), order.begin() + WIDTH, shorter);
            for (int e = 0; e < WIDTH; ++e) {
                columns[std::size_t(r) * WIDTH + e] = order[e];
                lengths[std::size_t(r) * WIDTH + e] = row[order[e]];
            }
            for (int b = 0; b < BLOCKS; ++b) rest[std::size_t(r) * BLOCKS + b] = row[order[(b + 1) * BLOCK]];
        });
    }
};

// One connected part of a graph, with coinciding nodes (distance 0 both ways) merged and only essential edges kept: an
// edge that a path over other nodes matches or beats carries no flow that the path cannot carry.
struct Network {
    int n = 0, stride = 0;
    bool directed = false;
    double reach = 0;  // no potential of a feasible tree differs by more
    double scale = 1;  // of the coarse copies: floats end at 1e38
    Matrix distances;  // between the classes
    Matrix out, in;    // lengths u -> v and v -> u; infinite: no edge. `in` is empty for an undirected graph
    Row<float> coarse_out, coarse_in;  // the same, rounded, for the first look of a search
    ShortEdges short_out, short_in;    // of long maps only
    std::vector<int> members;          // members[k]: one original node of class k; of a part of a network, a class of the whole
    const Network* whole = nullptr;    // of a part: all its distances are edges

    const Matrix& rows(bool outward) const { return outward || !directed ? out : in; }
    const Row<float>& coarse(bool outward) const { return outward || !directed ? coarse_out : coarse_in; }

    // A rougher copy still, for Cuts: sixteen lengths are one vector. Potentials lie within 1.5 `reach` of zero, so that no
    // sum of a length and two of them overflows. What is no edge, or not across the cut, comes to more than ROUGH_NONE; a
    // length and two potentials, each off by half a unit, may hide an edge shorter by ROUGH_ERROR.
    static constexpr int ROUGH_REACH = 10000, ROUGH_ERROR = 3, ROUGH_NONE = 17000;
    static constexpr int MOST_FEW = 65;
    int rough_stride = 0;  // 0: too many classes
    double rough_scale = 1;
    Row<std::int16_t> rough_out, rough_in;
    Row<std::int16_t> rough_between;  // of the distances; empty where `step` is

    template <bool PART> const std::int16_t* between() const { return (PART ? rough_out : rough_between).data(); }
    template <bool PART> double distance(int a, int b) const { return PART ? whole->distances[members[a]][members[b]] : distances[a][b]; }

    template <bool PART> double edge(int a, int b) const { return PART ? distance<true>(a, b) : out[a][b]; }

    const std::int16_t* rough(bool outward) const { return (outward || !directed ? rough_out : rough_in).data(); }

    std::vector<std::uint16_t> step;  // step[v * n + u]: the class after v on a shortest way to u; empty where not known
    bool warm = true;                 // a pair starts from the tree of the pair before it, not from one made for it
    int few = 0;                      // on so many nodes a pair is solved first
    static constexpr int NEAR = 8;
    std::vector<std::uint16_t> near;  // near[v * NEAR + k]: the k-th nearest class to v; empty where it does not pay
    bool halved = false;              // many edges are essential: what is near is not that near

    EdgesOnce once;  // of undirected maps for Cuts

    const ShortEdges& short_edges(bool outward) const { return outward || !directed ? short_out : short_in; }

    void finish(double bound, Crew& crew) {
        stride = out.stride;
        reach = bound;
        scale = reach > 1e-300 ? 1 / reach : 1;
        auto round = [&](const Matrix& m, Row<float>& coarse) {
            coarse.resize(m.data.size());
            std::transform(m.data.begin(), m.data.end(), coarse.begin(), [&](double x) { return float(x * scale); });
        };
        // Few sizes: each is code of its own. A class token and 64, 128 or 256 patches belong to the smaller ones.
        rough_stride = n <= 32 ? 32 : n <= 65 ? 80 : n <= 129 ? 144 : n <= 208 ? 208 : n <= 257 ? 272 : 0;
        rough_scale = scale * ROUGH_REACH;
        auto roughen = [&](const Matrix& m, Row<std::int16_t>& rough) {
            rough.assign(std::size_t(std::max(n, 65)) * rough_stride, 32767);  // node 64 may be looked at where nothing is found
            for (int u = 0; u < n; ++u) round_lengths(m[u], rough_scale, stride, rough.data() + u * rough_stride);
        };
        if (rough_stride) roughen(out, rough_out);
        if (!directed && rough_stride) {
            find_steps(crew);
            warm = step.empty();
            if (!warm) roughen(distances, rough_between);
            const auto edges = std::count_if(out.data.begin(), out.data.end(), [](double x) { return x < INF; }) / 2;
            // Measured: fewer edges do not repay it.
            if (!warm && edges >= (n <= 65 ? 1500 : 500)) few = std::min(n / (edges < 8 * n ? 5 : 3), MOST_FEW);
            if (few && n > 65) find_near(crew);
            once.fill(out[0], n, stride, scale);
            halved = edges * 8 >= std::int64_t(n) * n;
        }
        round(out, coarse_out);
        const bool many = n >= ShortEdges::FROM;
        if (many) short_out.fill(coarse_out, n, stride, crew);
        if (!directed) return;
        in = Matrix(n);
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) in[v][u] = out[u][v];
        if (rough_stride) roughen(in, rough_in);
        round(in, coarse_in);
        if (many) short_in.fill(coarse_in, n, stride, crew);
    }

    void find_near(Crew& crew) {
        near.resize(std::size_t(n) * NEAR);
        crew.each(n, [&](int v) {
            const std::int16_t* row = rough_between.data() + v * rough_stride;
            std::vector<std::uint16_t> others;
            for (int u = 0; u < n; ++u)
                if (u != v) others.push_back(std::uint16_t(u));
            std::partial_sort_copy(others.begin(), others.end(), &near[std::size_t(v) * NEAR], &near[std::size_t(v) * NEAR] + NEAR,
                                   [&](int a, int b) { return row[a] < row[b]; });
        });
    }

    // Each step comes nearer, so that every way ends. There are none where rounding hides that (an edge of 1e-20 on a way of 1).
    void find_steps(Crew& crew) {
        step.resize(std::size_t(n) * n);
        std::atomic<bool> known{true};
        crew.each_block(n, [&](int from, int end) {
            Row<double> best(stride), to(stride);
            for (int v = from; v < end; ++v) {
                if (!known.load(std::memory_order_relaxed)) return;
                std::fill(best.begin(), best.end(), INF);
                const double* here = distances[v];
                for (int s = 0; s < n; ++s) {
                    const double length = out[v][s], *there = distances[s];
                    if (!(length < INF)) continue;
                    for (int u = 0; u < stride; ++u) {
                        const double sum = length + there[u];
                        const bool better = sum < best[u] && there[u] < here[u];
                        best[u] = better ? sum : best[u];
                        to[u] = better ? double(s) : to[u];
                    }
                }
                for (int u = 0; u < n; ++u) {
                    step[std::size_t(v) * n + u] = std::uint16_t(to[u]);
                    if (u != v && !(best[u] <= here[u] * (1 + 1e-14))) known = false;
                }
            }
        });
        if (!known) step.clear();
    }
};

}  // namespace geoattn::GEOATTN_ISA

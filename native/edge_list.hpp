// The edges of dense maps: where they are, and their values back in their places.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace geoattn {

struct EdgeList {
    std::vector<std::int64_t> places;   // flat, in (graphs, n, n), ascending
    std::vector<std::int32_t> pairs;    // two for each edge
    std::vector<std::int64_t> offsets;  // of the graphs among them, and their number at the end
};

// Pairs of finite length, each once: i < j, or both ways round if directed; never i = j.
inline EdgeList list_edges(const double* lengths, std::int64_t graphs, std::int64_t n, bool directed) {
    EdgeList list;
    const std::size_t most = std::size_t(graphs * n * (n - 1)) / (directed ? 1 : 2);
    list.places.reserve(most);
    list.pairs.reserve(2 * most);
    list.offsets.push_back(0);
    std::int64_t place = 0;
    for (std::int64_t g = 0; g < graphs; ++g) {
        for (std::int64_t i = 0; i < n; ++i, place += n)
            for (std::int64_t j = directed ? 0 : i + 1; j < n; ++j)
                if (std::isfinite(lengths[place + j]) && i != j) {
                    list.places.push_back(place + j);
                    list.pairs.push_back(std::int32_t(i));
                    list.pairs.push_back(std::int32_t(j));
                }
        list.offsets.push_back(std::int64_t(list.places.size()));
    }
    return list;
}

// The places of the same edges in the other triangle. Places ascend, so that nothing has to be divided.
inline std::vector<std::int64_t> mirrored(const std::int64_t* places, std::size_t edges, std::int64_t n) {
    std::vector<std::int64_t> mirror(edges);
    std::int64_t map = 0, row = 0, i = 0;  // of the place at hand
    for (std::size_t e = 0; e < edges; ++e) {
        while (places[e] >= map + n * n) map += n * n, row = map, i = 0;
        while (places[e] >= row + n) row += n, ++i;
        mirror[e] = map + (places[e] - row) * n + i;
    }
    return mirror;
}

// A value for each edge into its place and, unless `mirror` is empty, into that one; `nothing` elsewhere.
template <class T>
void lay_out(const T* values, const std::int64_t* places, std::size_t edges, const std::vector<std::int64_t>& mirror, T nothing, T* out,
             std::size_t size) {
    std::fill_n(out, size, nothing);
    for (std::size_t e = 0; e < edges; ++e) out[places[e]] = values[e];
    for (std::size_t e = 0; e < mirror.size(); ++e) out[mirror[e]] = values[e];
}

}  // namespace geoattn

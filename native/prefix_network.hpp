// The first classes of a network, for pairs whose measures end there.
//
// A row of a causal map ends with its own token. W1 of two rows depends on the distances between the tokens that they reach, and on
// nothing else. Such a pair is solved on a network of the first tokens with the distances of the whole map. Searches, trees and sets
// then have the size of the rows and not that of the map. A prefix has no edges: it serves values, by roles (cut_ties.hpp). The size
// follows from the pair and the map alone, so that no value depends on other pairs.
#pragma once
#include "network.hpp"

namespace geoattn::GEOATTN_ISA {

// How many classes a pair is solved on whose measures have nothing beyond the first `end`: a full row of a short map, or an eighth of a
// long one. The whole network where that is nearly as small.
inline int prefix_size(const Network& whole, int end) {
    int size = std::max(end, 2);
    if (size <= Network::FIXED) {
        for (const int full : {32, 65, 129, 208, 257, 336, 400, 464, Network::FIXED})
            if (size <= full) {
                size = full;
                break;
            }
    } else {
        const int step = (whole.n + 7) / 8;
        size = (size + step - 1) / step * step;
    }
    return std::int64_t(size) * 8 <= std::int64_t(whole.n) * 7 ? size : whole.n;
}

inline Network prefix_of(const Network& whole, int size, Crew& crew) {
    Network net;
    net.n = size;
    net.directed = whole.directed;
    net.longer = &whole;
    net.members.assign(whole.members.begin(), whole.members.begin() + size);
    net.reach = whole.reach;
    net.rough_scale = whole.rough_scale;
    net.vectors = Network::vectors_of(size);
    net.stride = 16 * net.vectors;
    const auto copy = [&](const Row<std::int16_t>& from, Row<std::int16_t>& to) {
        to.assign(std::size_t(size) * net.stride, 32767);
        for (int u = 0; u < size; ++u) std::copy_n(&from[std::size_t(u) * whole.stride], size, &to[std::size_t(u) * net.stride]);
    };
    copy(whole.rough_to, net.rough_to);
    if (net.directed) copy(whole.rough_from, net.rough_from);
    if (!whole.stored.empty()) {
        net.stored.resize(std::size_t(size) * size);
        for (int u = 0; u < size; ++u) std::copy_n(&whole.stored[std::size_t(u) * whole.n], size, &net.stored[std::size_t(u) * size]);
    }
    net.halved = net.by_roles = true;
    net.few = size > 65 ? Network::stage_size(size, size / 3) : 0;
    if (net.few) net.find_near(crew);
    return net;
}

}  // namespace geoattn::GEOATTN_ISA

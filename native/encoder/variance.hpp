// The variance of short attention maps and its gradient, map by map: a map and what it needs stay in the L1 cache.
#pragma once
#include "attention.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

// The rows of a map sum to one, so that entries have the mean 1/n. With d = weights - 1/n the sum of squares of a row is s = sum d^2, and
// its gradient by the logits is 2 weights (d - s). What all keys have in common moves no weight; it is taken off, and costs no digits.
inline void variance_maps(const MapVariance& job) {
    Scratch scratch;
    const MapRoom room(job.tokens, job.dim, scratch);
    const int n = room.n, dim = room.dim, stride = room.map_stride;
    float *query = scratch.rows(room.padded, dim), *out = scratch.rows(room.padded, dim), *map = scratch.rows(room.padded, room.columns);
    float *keys = scratch.take(std::size_t(n) * dim), *common = scratch.take(dim), *mean = scratch.take(room.columns);
    float* to = scratch.take(std::size_t(room.padded) * dim);
    std::fill_n(map, std::size_t(room.padded) * stride, 0.0f);
    for (int j = 0; j < room.columns; ++j) mean[j] = j < n ? 1.0f / float(n) : 0.0f;
    const std::ptrdiff_t size = std::ptrdiff_t(n) * dim;
    for (std::int64_t at = 0; at < job.maps; ++at) {
        const float* key = job.key + at * size;
        std::fill_n(common, dim, 0.0f);
        for (int i = 0; i < n; ++i)
            for (int k = 0; k < dim; k += LANES) store(common + k, load(common + k) + load(key + i * dim + k) * mean[0]);
        for (int i = 0; i < n; ++i)
            for (int k = 0; k < dim; k += LANES) store(keys + i * dim + k, (load(key + i * dim + k) - load(common + k)) * job.scale);
        room.fill(job.query + at * size, query);
        room.dots(query, keys, map);
        double squares = 0;
        for (int i = 0; i < n; ++i) {
            float* row = map + i * stride;
            softmax(row, n, room.columns, 1.0f);
            Lanes sum = all(0);
            for (int j = 0; j < room.columns; j += LANES) {
                const Lanes apart = load(row + j) - load(mean + j);
                sum += apart * apart;
            }
            const float square = total(sum);
            squares += double(square);
            for (int j = 0; j < room.columns; j += LANES) {
                const Lanes weight = load(row + j);
                store(row + j, (weight - load(mean + j) - square) * weight);
            }
        }
        job.squares[at] = squares;
        if (!job.to_query) continue;
        room.mix(map, keys, out);
        for (int i = 0; i < n; ++i) std::copy_n(out + i * room.row_stride, dim, job.to_query + at * size + i * dim);
        std::fill_n(to, std::size_t(room.padded) * dim, 0.0f);
        add_outer(map, stride, room.padded, query, room.row_stride, dim, n, to);
        std::copy_n(to, size, job.to_key + at * size);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

// LayerNorm and the projection to queries, keys and values, which leave in their own arrays, chunk by chunk.
#pragma once
#include <algorithm>

#include "jobs.hpp"
#include "layer_norm.hpp"
#include "products.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

// Calls visit(part, place in the array of the part, place in the row) for each piece of a row.
template <class Visit> GEOATTN_INLINE void pieces(const Projection& job, std::int64_t row, Visit visit) {
    const std::int64_t sample = row / job.tokens, token = row % job.tokens;
    for (int p = 0; p < job.parts; ++p)
        for (int h = 0; h < job.heads; ++h)
            visit(p, ((sample * job.heads + h) * job.tokens + token) * job.dim, (p * job.heads + h) * job.dim);
}

inline void forward_chunks(const Projection& job) {
    const int width = job.width, all_parts = job.parts * job.heads * job.dim;
    const int narrow = Scratch::stride(width), wide = Scratch::stride(all_parts);
    const std::int64_t rows = job.samples * job.tokens;
    const Norm norm{job.norm_weight, job.norm_bias, width, job.epsilon};
    Scratch scratch;
    const Packed weights(scratch, job.weight, width, all_parts, 1, width);
    float *y = scratch.rows(CHUNK, width), *z = scratch.rows(CHUNK, all_parts);
    for (std::int64_t from = 0; from < rows; from += CHUNK) {
        const int count = int(std::min<std::int64_t>(CHUNK, rows - from)), padded = (count + TILE - 1) / TILE * TILE;
        norm.measure(job.x + from * width, count, job.moments + 2 * from);
        norm.apply(job.x + from * width, job.moments + 2 * from, count, padded, y, narrow);
        multiply(y, narrow, padded, weights, nullptr, z, wide);
        for (int i = 0; i < count; ++i)
            pieces(job, from + i, [&](int part, std::int64_t to, int at) { std::copy_n(z + i * wide + at, job.dim, job.out[part] + to); });
    }
}

inline void backward_chunks(const Projection& job) {
    const int width = job.width, all_parts = job.parts * job.heads * job.dim;
    const int narrow = Scratch::stride(width), wide = Scratch::stride(all_parts);
    const std::int64_t rows = job.samples * job.tokens;
    const Norm norm{job.norm_weight, job.norm_bias, width, job.epsilon};
    Scratch scratch;
    const Packed weights(scratch, job.weight, all_parts, width, width, 1);
    float *y = scratch.rows(CHUNK, width), *by_y = scratch.rows(CHUNK, width), *by_z = scratch.rows(CHUNK, all_parts);
    std::fill_n(job.to_weight, std::size_t(width) * all_parts, 0.0f);
    std::fill_n(job.to_norm_weight, width, 0.0f), std::fill_n(job.to_norm_bias, width, 0.0f);
    for (std::int64_t from = 0; from < rows; from += CHUNK) {
        const int count = int(std::min<std::int64_t>(CHUNK, rows - from)), padded = (count + TILE - 1) / TILE * TILE;
        const float *x = job.x + from * width, *moments = job.moments + 2 * from;
        for (int i = 0; i < count; ++i)
            pieces(job, from + i,
                   [&](int part, std::int64_t at, int to) { std::copy_n(job.by_out[part] + at, job.dim, by_z + i * wide + to); });
        for (int i = count; i < padded; ++i) std::fill_n(by_z + i * wide, all_parts, 0.0f);
        norm.apply(x, moments, count, padded, y, narrow);
        add_outer(by_z, wide, all_parts, y, narrow, width, count, job.to_weight);
        multiply(by_z, wide, padded, weights, nullptr, by_y, narrow);
        norm.pull_back(by_y, narrow, x, moments, count, job.to_x + from * width, job.to_norm_weight, job.to_norm_bias);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

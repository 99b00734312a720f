// The feed-forward block of an encoder, chunk by chunk.
#pragma once
#include <algorithm>

#include "dropout.hpp"
#include "jobs.hpp"
#include "layer_norm.hpp"
#include "products.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

// Streams of random numbers: two for each chunk.
inline Dropout inner_dropout(const FeedForward& job, std::int64_t chunk) {
    return {job.seed, 2 * std::uint64_t(chunk), job.inner_threshold};
}
inline Dropout outer_dropout(const FeedForward& job, std::int64_t chunk) {
    return {job.seed, 2 * std::uint64_t(chunk) + 1, job.outer_threshold};
}

inline int filled_up(int count) { return (count + TILE - 1) / TILE * TILE; }

// drop(gelu(hidden)); with `slope` also drop(gelu'(hidden)).
inline void activate(const float* hidden, int count, int width, Dropout& dropout, float* to, int stride, float* slope) {
    const bool drops = dropout.drops();
    for (int i = 0; i < count; ++i, hidden += width, to += stride, slope += slope ? stride : 0)
        for (int k = 0; k < width; k += Dropout::DRAW) {
            Lanes factor[Dropout::PARTS];
            std::fill_n(factor, Dropout::PARTS, all(1));
            if (drops) dropout.next(factor);
#pragma GCC unroll 2
            for (int l = 0; l < Dropout::PARTS; ++l) {
                const Lanes x = load(hidden + k + l * LANES);
                const Normal at = normal(x);
                store(to + k + l * LANES, x * at.below * factor[l]);
                if (slope) store(slope + k + l * LANES, (at.below + x * at.density) * factor[l]);
            }
        }
}

inline void forward_chunks(const FeedForward& job) {
    const int width = job.width, middle = job.middle, narrow = Scratch::stride(width), wide = Scratch::stride(middle);
    const Norm norm{job.norm_weight, job.norm_bias, width, job.epsilon};
    Scratch scratch;
    const Packed first(scratch, job.first, width, middle, 1, width), second(scratch, job.second, middle, width, 1, middle);
    float *y = scratch.rows(CHUNK, width), *h = scratch.rows(CHUNK, middle);
    for (std::int64_t chunk = 0; chunk * CHUNK < job.rows; ++chunk) {
        const std::int64_t from = chunk * CHUNK;
        const int count = int(std::min<std::int64_t>(CHUNK, job.rows - from)), padded = filled_up(count);
        const float* x = job.x + from * width;
        float* hidden = job.hidden + from * middle;
        norm.measure(x, count, job.moments + 2 * from);
        norm.apply(x, job.moments + 2 * from, count, padded, y, narrow);
        multiply(y, narrow, padded, first, job.first_bias, h, wide);
        for (int i = 0; i < count; ++i) std::copy(h + i * wide, h + i * wide + middle, hidden + std::int64_t(i) * middle);
        Dropout inner = inner_dropout(job, chunk), outer = outer_dropout(job, chunk);
        activate(hidden, count, middle, inner, h, wide, nullptr);
        multiply(h, wide, padded, second, job.second_bias, y, narrow);
        for (int i = 0; i < count; ++i) {
            if (outer.drops()) outer.apply(y + i * narrow, width);
            std::copy(y + i * narrow, y + i * narrow + width, job.out + (from + i) * width);
        }
    }
}

inline void backward_chunks(const FeedForward& job) {
    const int width = job.width, middle = job.middle, narrow = Scratch::stride(width), wide = Scratch::stride(middle);
    const Norm norm{job.norm_weight, job.norm_bias, width, job.epsilon};
    Scratch scratch;
    const Packed first(scratch, job.first, middle, width, width, 1), second(scratch, job.second, width, middle, middle, 1);
    float *y = scratch.rows(CHUNK, width), *by_y = scratch.rows(CHUNK, width), *by_out = scratch.rows(CHUNK, width);
    float *h = scratch.rows(CHUNK, middle), *slope = scratch.rows(CHUNK, middle), *by_h = scratch.rows(CHUNK, middle);
    std::fill_n(job.to_first, std::size_t(width) * middle, 0.0f), std::fill_n(job.to_second, std::size_t(width) * middle, 0.0f);
    std::fill_n(job.to_first_bias, middle, 0.0f), std::fill_n(job.to_second_bias, width, 0.0f);
    std::fill_n(job.to_norm_weight, width, 0.0f), std::fill_n(job.to_norm_bias, width, 0.0f);
    for (std::int64_t chunk = 0; chunk * CHUNK < job.rows; ++chunk) {
        const std::int64_t from = chunk * CHUNK;
        const int count = int(std::min<std::int64_t>(CHUNK, job.rows - from)), padded = filled_up(count);
        const float *x = job.x + from * width, *moments = job.moments + 2 * from;
        Dropout inner = inner_dropout(job, chunk), outer = outer_dropout(job, chunk);
        for (int i = 0; i < padded; ++i) {
            float* row = by_out + i * narrow;
            if (i >= count) {
                std::fill_n(row, width, 0.0f);
                continue;
            }
            std::copy_n(job.by_out + (from + i) * width, width, row);
            if (outer.drops()) outer.apply(row, width);
        }
        activate(job.hidden + from * middle, count, middle, inner, h, wide, slope);
        add_columns(by_out, narrow, count, width, job.to_second_bias);
        add_outer(by_out, narrow, width, h, wide, middle, count, job.to_second);
        multiply(by_out, narrow, padded, second, nullptr, by_h, wide);
        for (int i = 0; i < count; ++i)
            for (int k = 0; k < middle; k += LANES) store(by_h + i * wide + k, load(by_h + i * wide + k) * load(slope + i * wide + k));
        norm.apply(x, moments, count, padded, y, narrow);
        add_columns(by_h, wide, count, middle, job.to_first_bias);
        add_outer(by_h, wide, middle, y, narrow, width, count, job.to_first);
        multiply(by_h, wide, padded, first, nullptr, by_y, narrow);
        norm.pull_back(by_y, narrow, x, moments, count, job.to_x + from * width, job.to_norm_weight, job.to_norm_bias);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

// Attention with dropout on its weights, for short sequences, map by map: a map and what it needs stay in the L1 cache.
#pragma once
#include <algorithm>
#include <limits>

#include "dropout.hpp"
#include "jobs.hpp"
#include "products.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

// The working memory of a map. Its rows are filled up to whole tiles and its columns to whole strips, with zeros.
struct MapRoom {
    MapRoom(int tokens, int width, Scratch& scratch)
        : n(tokens), dim(width), padded((n + TILE - 1) / TILE * TILE), columns((n + STRIP - 1) / STRIP * STRIP),
          drawn((n + Dropout::DRAW - 1) / Dropout::DRAW * Dropout::DRAW), map_stride(Scratch::stride(columns)),
          row_stride(Scratch::stride(dim)), across(scratch.take(std::size_t(dim) * columns)), down(scratch.take(std::size_t(n) * dim)) {
        std::fill_n(across, std::size_t(dim) * columns, 0.0f);
    }

    // Rows of one head with zeros below.
    void fill(const float* from, float* to) const {
        for (int i = 0; i < n; ++i) std::copy_n(from + std::ptrdiff_t(i) * dim, dim, to + i * row_stride);
        for (int i = n; i < padded; ++i) std::fill_n(to + i * row_stride, dim, 0.0f);
    }

    // to = rows * other^T, (padded, columns)
    void dots(const float* rows, const float* other, float* to) const {
        for (int l = 0; l < n; ++l) {  // columns past n stay zero
            float* strip = across + std::ptrdiff_t(l / STRIP) * dim * STRIP + l % STRIP;
            for (int k = 0; k < dim; ++k) strip[k * STRIP] = other[std::ptrdiff_t(l) * dim + k];
        }
        multiply(rows, row_stride, padded, Packed(across, dim, columns), nullptr, to, map_stride);
    }

    // to = map * other, (padded, dim)
    void mix(const float* map, const float* other, float* to) const {
        float* strip = down;
        for (int j = 0; j < dim; j += STRIP)
            for (int k = 0; k < n; ++k, strip += STRIP) std::copy_n(other + std::ptrdiff_t(k) * dim + j, STRIP, strip);
        multiply(map, map_stride, padded, Packed(down, n, dim), nullptr, to, row_stride);
    }

    int n, dim, padded, columns, drawn, map_stride, row_stride;  // drawn: the columns that a dropout draws for
    float *across, *down;
};

// The softmax of scale * x over the first n columns, in place; the others become 0.
inline void softmax(float* x, int n, int columns, float scale) {
    Lanes top = all(-std::numeric_limits<float>::infinity());
    for (int j = n; j < columns; ++j) x[j] = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < columns; j += LANES) {
        const Lanes scaled = load(x + j) * scale;
        store(x + j, scaled);
        top = scaled > top ? scaled : top;
    }
    const float most = largest(top);
    Lanes sum = all(0);
    for (int j = 0; j < columns; j += LANES) {
        const Lanes weight = exp_of_negative(load(x + j) - most);
        store(x + j, weight);
        if (j + LANES <= n) sum += weight;
    }
    float whole = total(sum);
    for (int j = n / LANES * LANES; j < n; ++j) whole += x[j];
    for (int j = n; j < columns; ++j) x[j] = 0.0f;
    const float inverse = 1.0f / whole;
    for (int j = 0; j < columns; j += LANES) store(x + j, load(x + j) * inverse);
}

inline void forward_maps(const Attention& job) {
    Scratch scratch;
    const MapRoom room(job.tokens, job.dim, scratch);
    const int n = room.n, stride = room.map_stride;
    float *rows = scratch.rows(room.padded, room.dim), *map = scratch.rows(room.padded, room.columns);
    const std::ptrdiff_t size = std::ptrdiff_t(n) * room.dim;
    for (std::int64_t at = 0; at < job.maps; ++at) {
        room.fill(job.query + at * size, rows);
        room.dots(rows, job.key + at * size, map);
        Dropout dropout(job.seed, std::uint64_t(at), job.threshold);
        for (int i = 0; i < n; ++i) {
            softmax(map + i * stride, n, room.columns, job.scale);
            std::copy_n(map + i * stride, n, job.weights + (at * n + i) * n);
            if (dropout.drops()) dropout.apply(map + i * stride, room.drawn);
        }
        room.mix(map, job.value + at * size, rows);
        for (int i = 0; i < n; ++i) std::copy_n(rows + i * room.row_stride, room.dim, job.out + at * size + i * room.dim);
    }
}

inline void backward_maps(const Attention& job) {
    Scratch scratch;
    const MapRoom room(job.tokens, job.dim, scratch);
    const int n = room.n, dim = room.dim, stride = room.map_stride, columns = room.columns, padded = room.padded;
    float *upstream = scratch.rows(padded, dim), *rows = scratch.rows(padded, dim), *to = scratch.take(std::size_t(padded) * dim);
    float *map = scratch.rows(padded, columns), *slope = scratch.rows(padded, columns), *factor = scratch.take(columns);
    const std::ptrdiff_t size = std::ptrdiff_t(n) * dim;
    std::fill_n(map, std::size_t(padded) * stride, 0.0f);
    // columns past n are zero in every map, so that the rows past n of these products are zero too
    const auto by_rows = [&](const float* weights, const float* of, float* where) {
        std::fill_n(to, std::size_t(padded) * dim, 0.0f);
        add_outer(weights, stride, padded, of, room.row_stride, dim, n, to);
        std::copy_n(to, size, where);
    };
    for (std::int64_t at = 0; at < job.maps; ++at) {
        room.fill(job.by_out + at * size, upstream);
        room.dots(upstream, job.value + at * size, slope);
        Dropout dropout(job.seed, std::uint64_t(at), job.threshold);
        for (int i = 0; i < n; ++i) {
            float *weight = map + i * stride, *by = slope + i * stride;
            std::copy_n(job.weights + (at * n + i) * n, n, weight);
            std::fill_n(factor, columns, 1.0f);
            if (dropout.drops()) dropout.apply(factor, room.drawn);
            Lanes sum = all(0);
            for (int j = 0; j < columns; j += LANES) {
                const Lanes dropped = load(by + j) * load(factor + j);
                store(by + j, dropped);
                sum += dropped * load(weight + j);
            }
            const float mean = total(sum);
            for (int j = 0; j < columns; j += LANES) {
                store(by + j, (load(by + j) - mean) * load(weight + j) * job.scale);
                store(weight + j, load(weight + j) * load(factor + j));
            }
        }
        by_rows(map, upstream, job.to_value + at * size);
        room.fill(job.query + at * size, rows);
        by_rows(slope, rows, job.to_key + at * size);
        room.mix(slope, job.key + at * size, rows);
        for (int i = 0; i < n; ++i) std::copy_n(rows + i * room.row_stride, dim, job.to_query + at * size + i * dim);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

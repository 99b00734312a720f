// Matrix products of a chunk of rows with weights, in tiles of six rows and two vectors that stay in registers.
#pragma once
#include <cstddef>

#include "lanes.hpp"
#include "scratch.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

constexpr int TILE = 6, STRIP = 2 * LANES;

// Weights in strips of two vectors of columns, each of them contiguous; entry (k, j) is from[k * down + j * across].
class Packed {
  public:
    Packed(Scratch& scratch, const float* from, int depth, int width, std::ptrdiff_t down, std::ptrdiff_t across)
        : depth(depth), width(width), strips(scratch.take(std::size_t(depth) * width)) {
        float* to = strips;
        for (int j = 0; j < width; j += STRIP)
            for (int k = 0; k < depth; ++k)
                for (int l = 0; l < STRIP; ++l) *to++ = from[k * down + (j + l) * across];
    }
    Packed(float* strips, int depth, int width) : depth(depth), width(width), strips(strips) {}  // packed already
    int depth, width;
    float* strips;
};

// A tile of c += sum over k of a(i, k) b(k, j): a(i, k) is a[i * a_row + k * a_column], a row of b is b[k * b_row ...].
template <int ROWS>
GEOATTN_INLINE void tile(Lanes (&sum)[ROWS][2], const float* a, std::ptrdiff_t a_row, std::ptrdiff_t a_column, const float* b,
                         std::ptrdiff_t b_row, int depth) {
    for (int k = 0; k < depth; ++k) {
        const Lanes left = load(b), right = load(b + LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const Lanes x = all(a[i * a_row]);
            sum[i][0] += x * left;
            sum[i][1] += x * right;
        }
        a += a_column, b += b_row;
    }
}

// to = rows * weights + bias (none: nullptr); `count` is a multiple of TILE, which the caller fills up with zeros.
inline void multiply(const float* rows, int stride, int count, const Packed& weights, const float* bias, float* to, int to_stride) {
    for (int j = 0; j < weights.width; j += STRIP) {
        const float* strip = weights.strips + std::size_t(j) * weights.depth;
        const Lanes left = bias ? load(bias + j) : all(0), right = bias ? load(bias + j + LANES) : all(0);
        for (int i = 0; i < count; i += TILE) {
            Lanes sum[TILE][2];
#pragma GCC unroll 8
            for (auto& row : sum) row[0] = left, row[1] = right;
            tile<TILE>(sum, rows + std::ptrdiff_t(i) * stride, stride, 1, strip, STRIP, weights.depth);
#pragma GCC unroll 8
            for (int r = 0; r < TILE; ++r) {
                store(to + std::ptrdiff_t(i + r) * to_stride + j, sum[r][0]);
                store(to + std::ptrdiff_t(i + r) * to_stride + j + LANES, sum[r][1]);
            }
        }
    }
}

template <int ROWS>
inline void add_outer_rows(const float* a, int a_stride, const float* b, int b_stride, int count, int width, float* to) {
    for (int j = 0; j < width; j += STRIP) {
        Lanes sum[ROWS][2];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) sum[r][0] = load(to + r * width + j), sum[r][1] = load(to + r * width + j + LANES);
        tile<ROWS>(sum, a, 1, a_stride, b + j, b_stride, count);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) store(to + r * width + j, sum[r][0]), store(to + r * width + j + LANES, sum[r][1]);
    }
}

// to += a^T b over `count` rows: the gradient of weights of `height` outputs and `width` inputs.
inline void add_outer(const float* a, int a_stride, int height, const float* b, int b_stride, int width, int count, float* to) {
    int i = 0;
    for (; i + TILE <= height; i += TILE) add_outer_rows<TILE>(a + i, a_stride, b, b_stride, count, width, to + std::ptrdiff_t(i) * width);
    for (; i + 2 <= height; i += 2) add_outer_rows<2>(a + i, a_stride, b, b_stride, count, width, to + std::ptrdiff_t(i) * width);
}

// to += the sum of the rows
inline void add_columns(const float* rows, int stride, int count, int width, float* to) {
    for (int j = 0; j < width; j += STRIP) {
        Lanes left = load(to + j), right = load(to + j + LANES);
        for (int i = 0; i < count; ++i) {
            left += load(rows + std::ptrdiff_t(i) * stride + j);
            right += load(rows + std::ptrdiff_t(i) * stride + j + LANES);
        }
        store(to + j, left), store(to + j + LANES, right);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

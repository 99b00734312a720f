// The vector operations that the solver spends its time in, over rows padded to a multiple of eight.
// AVX2 by hand where the compiler targets it, plain loops elsewhere; both give the same bits.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "rows.hpp"

namespace geoattn::GEOATTN_ISA {

constexpr double INF = std::numeric_limits<double>::infinity();

inline int padded(int n) { return (n + 7) / 8 * 8; }

#if defined(__AVX2__)

inline double lowest(__m256d x) {
    const __m128d pair = _mm_min_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_min_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

inline float lowest(__m256 x) {
    __m128 four = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_min_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_min_ss(four, _mm_shuffle_ps(four, four, 1)));
}

// The search across a cut, in float: for all columns k, reach[k] = min over the given rows r of
// (lengths(r, k) - own[r]) + sign * p[k], infinite for the columns in `side`; returns the smallest. Columns outside, rows
// inside: no reduction per row, and half the memory traffic of double, which is what bounds it.
inline float search_cut(const float* lengths, int stride, const int* rows, const float* own, int count, const float* p, float sign,
                        const std::uint64_t* side, float* reach) {
    const __m256 top = _mm256_set1_ps(std::numeric_limits<float>::infinity()), s = _mm256_set1_ps(sign);
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256 low = top;
    auto finish = [&](__m256 best, int k) {
        const __m256i bits = _mm256_and_si256(_mm256_set1_epi32(int(side[k >> 6] >> (k & 63) & 255)), lane);
        const __m256 in_side = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, lane));
        best = _mm256_blendv_ps(_mm256_add_ps(best, _mm256_mul_ps(s, _mm256_load_ps(p + k))), top, in_side);
        _mm256_store_ps(reach + k, best);
        low = _mm256_min_ps(low, best);
    };
    int k = 0;
    for (; k + 64 <= stride; k += 64) {
        __m256 m0 = top, m1 = top, m2 = top, m3 = top, m4 = top, m5 = top, m6 = top, m7 = top;
        for (int r = 0; r < count; ++r) {
            const float* row = lengths + std::size_t(rows[r]) * stride + k;
            const __m256 b = _mm256_set1_ps(own[r]);
            m0 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row), b), m0);
            m1 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 8), b), m1);
            m2 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 16), b), m2);
            m3 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 24), b), m3);
            m4 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 32), b), m4);
            m5 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 40), b), m5);
            m6 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 48), b), m6);
            m7 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(row + 56), b), m7);
        }
        finish(m0, k), finish(m1, k + 8), finish(m2, k + 16), finish(m3, k + 24);
        finish(m4, k + 32), finish(m5, k + 40), finish(m6, k + 48), finish(m7, k + 56);
    }
    for (; k < stride; k += 8) {
        __m256 m0 = top;
        for (int r = 0; r < count; ++r)
            m0 = _mm256_min_ps(_mm256_sub_ps(_mm256_load_ps(lengths + std::size_t(rows[r]) * stride + k), _mm256_set1_ps(own[r])), m0);
        finish(m0, k);
    }
    return lowest(low);
}

// positions of the entries that are at most `limit`, at most `most` of them; returns how many there are
inline int at_most(const float* x, int n, float limit, int* where, int most) {
    const __m256 bound = _mm256_set1_ps(limit);
    int found = 0;
    for (int k = 0; k < n; k += 8)
        for (int hits = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_load_ps(x + k), bound, _CMP_LE_OQ)); hits; hits &= hits - 1, ++found)
            if (found < most) where[found] = k + __builtin_ctz(hits);
    return found;
}

// first position of the largest positive entry, -1 when there is none
inline int argmax_positive(const double* x, int n) {
    __m256d m0 = _mm256_setzero_pd(), m1 = m0;
    int k = 0;
    for (; k + 8 <= n; k += 8) {
        m0 = _mm256_max_pd(m0, _mm256_load_pd(x + k));
        m1 = _mm256_max_pd(m1, _mm256_load_pd(x + k + 4));
    }
    for (; k < n; k += 4) m0 = _mm256_max_pd(m0, _mm256_load_pd(x + k));
    m0 = _mm256_max_pd(m0, m1);
    const __m128d pair = _mm_max_pd(_mm256_castpd256_pd128(m0), _mm256_extractf128_pd(m0, 1));
    const double best = _mm_cvtsd_f64(_mm_max_sd(pair, _mm_unpackhi_pd(pair, pair)));
    if (!(best > 0)) return -1;
    const __m256d target = _mm256_set1_pd(best);
    for (k = 0;; k += 4) {
        const int hit = _mm256_movemask_pd(_mm256_cmp_pd(_mm256_load_pd(x + k), target, _CMP_EQ_OQ));
        if (hit) return k + __builtin_ctz(hit);
    }
}

// min over k of row[k] * (1 - unit * mark(k)) + more[k], and where it is (the first one); see Lengths.
inline double least_sum(const double* row, const std::uint32_t* mark, std::uint32_t own, double unit, const double* more, int n, int& at) {
    const __m128i mine = _mm_set1_epi32(int(own));
    const __m256d one = _mm256_set1_pd(1.0), u = _mm256_set1_pd(unit);
    const auto sum_at = [&](int k) {
        const __m128i hash = _mm_srli_epi32(_mm_mullo_epi32(mine, _mm_loadu_si128(reinterpret_cast<const __m128i*>(mark + k))), 1);
        const __m256d factor = _mm256_sub_pd(one, _mm256_mul_pd(u, _mm256_cvtepi32_pd(hash)));
        return _mm256_add_pd(_mm256_mul_pd(_mm256_loadu_pd(row + k), factor), _mm256_loadu_pd(more + k));
    };
    const auto tail_at = [&](int k) { return row[k] * (1.0 - unit * double(std::int32_t((own * mark[k]) >> 1))) + more[k]; };
    __m256d low = _mm256_set1_pd(INF);
    int k = 0;
    for (; k + 4 <= n; k += 4) low = _mm256_min_pd(sum_at(k), low);
    double best = lowest(low);
    for (; k < n; ++k) best = tail_at(k) < best ? tail_at(k) : best;
    at = -1;
    if (!(best < INF)) return best;
    const __m256d target = _mm256_set1_pd(best);
    for (k = 0; k + 4 <= n; k += 4)
        if (const int hit = _mm256_movemask_pd(_mm256_cmp_pd(sum_at(k), target, _CMP_EQ_OQ))) {
            at = k + __builtin_ctz(unsigned(hit));
            return best;
        }
    for (; k < n && at < 0; ++k) at = tail_at(k) == best ? k : -1;
    return best;
}

// min over k of row[k] + more[k], and where it is (the first one).
inline double least_sum(const double* row, const double* more, int n, int& at) {
    const auto sum_at = [&](int k) { return _mm256_add_pd(_mm256_loadu_pd(row + k), _mm256_loadu_pd(more + k)); };
    __m256d low = _mm256_set1_pd(INF), also = low;
    int k = 0;
    for (; k + 8 <= n; k += 8) low = _mm256_min_pd(sum_at(k), low), also = _mm256_min_pd(sum_at(k + 4), also);
    double best = lowest(_mm256_min_pd(low, also));
    for (; k < n; ++k) best = row[k] + more[k] < best ? row[k] + more[k] : best;
    at = -1;
    for (k = 0; best < INF && k + 4 <= n; k += 4)
        if (const int hit = _mm256_movemask_pd(_mm256_cmp_pd(sum_at(k), _mm256_set1_pd(best), _CMP_EQ_OQ))) {
            at = k + __builtin_ctz(unsigned(hit));
            return best;
        }
    for (; best < INF && k < n && at < 0; ++k) at = row[k] + more[k] == best ? k : -1;
    return best;
}

// See Lengths::relax.
inline double relax_over(const double* row, const std::uint32_t* mark, std::uint32_t own, double unit, double base, double name, double* to,
                         double* via, const double* nearest, int n) {
    const __m128i mine = _mm_set1_epi32(int(own));
    const __m256d one = _mm256_set1_pd(1.0), u = _mm256_set1_pd(unit), b = _mm256_set1_pd(base), label = _mm256_set1_pd(name);
    __m256d most = _mm256_set1_pd(-INF);
    int k = 0;
    for (; k + 4 <= n; k += 4) {
        const __m128i hash = _mm_srli_epi32(_mm_mullo_epi32(mine, _mm_loadu_si128(reinterpret_cast<const __m128i*>(mark + k))), 1);
        const __m256d factor = _mm256_sub_pd(one, _mm256_mul_pd(u, _mm256_cvtepi32_pd(hash)));
        const __m256d sum = _mm256_add_pd(b, _mm256_mul_pd(_mm256_loadu_pd(row + k), factor)), old = _mm256_loadu_pd(to + k);
        const __m256d shorter = _mm256_cmp_pd(sum, old, _CMP_LT_OQ), now = _mm256_blendv_pd(old, sum, shorter);
        _mm256_storeu_pd(to + k, now);
        _mm256_storeu_pd(via + k, _mm256_blendv_pd(_mm256_loadu_pd(via + k), label, shorter));
        most = _mm256_max_pd(_mm256_sub_pd(now, _mm256_loadu_pd(nearest + k)), most);
    }
    double lane[4];
    _mm256_storeu_pd(lane, most);
    double limit = std::max(std::max(lane[0], lane[1]), std::max(lane[2], lane[3]));
    for (; k < n; ++k) {
        const double sum = base + row[k] * (1.0 - unit * double(std::int32_t((own * mark[k]) >> 1)));
        if (sum < to[k]) to[k] = sum, via[k] = name;
        limit = to[k] - nearest[k] > limit ? to[k] - nearest[k] : limit;
    }
    return limit;
}

// Ways over a third node, which is `base` away: to[k] = min(to[k], base + through[k]), and via[k] = name where that is new.
inline void relax_through(double* to, double* via, double base, const double* through, double name, int n) {
    const __m256d b = _mm256_set1_pd(base), label = _mm256_set1_pd(name);
    int k = 0;
    for (; k + 4 <= n; k += 4) {
        const __m256d sum = _mm256_add_pd(b, _mm256_loadu_pd(through + k)), old = _mm256_loadu_pd(to + k);
        const __m256d shorter = _mm256_cmp_pd(sum, old, _CMP_LT_OQ);
        if (_mm256_movemask_pd(shorter)) {
            _mm256_storeu_pd(to + k, _mm256_blendv_pd(old, sum, shorter));
            _mm256_storeu_pd(via + k, _mm256_blendv_pd(_mm256_loadu_pd(via + k), label, shorter));
        }
    }
    for (; k < n; ++k)
        if (base + through[k] < to[k]) to[k] = base + through[k], via[k] = name;
}

// The same with short labels; returns whether anything is new.
inline bool relax_row(double* to, std::uint16_t* label, double base, const double* through, int name, int n) {
    const __m256d b = _mm256_set1_pd(base);
    bool any = false;
    int k = 0;
    for (; k + 4 <= n; k += 4) {
        const __m256d sum = _mm256_add_pd(b, _mm256_loadu_pd(through + k)), old = _mm256_loadu_pd(to + k);
        const __m256d shorter = _mm256_cmp_pd(sum, old, _CMP_LT_OQ);
        if (int hits = _mm256_movemask_pd(shorter)) {
            _mm256_storeu_pd(to + k, _mm256_blendv_pd(old, sum, shorter));
            for (any = true; hits; hits &= hits - 1) label[k + __builtin_ctz(unsigned(hits))] = std::uint16_t(name);
        }
    }
    for (; k < n; ++k)
        if (base + through[k] < to[k]) to[k] = base + through[k], label[k] = std::uint16_t(name), any = true;
    return any;
}

#else

inline float search_cut(const float* lengths, int stride, const int* rows, const float* own, int count, const float* p, float sign,
                        const std::uint64_t* side, float* reach) {
    const float top = std::numeric_limits<float>::infinity();
    float low = top;
    for (int k = 0; k < stride; ++k) reach[k] = top;
    for (int r = 0; r < count; ++r) {
        const float* row = lengths + std::size_t(rows[r]) * stride;
        for (int k = 0; k < stride; ++k) {
            const float gap = row[k] - own[r];
            reach[k] = gap < reach[k] ? gap : reach[k];
        }
    }
    for (int k = 0; k < stride; ++k) {
        reach[k] = side[k >> 6] >> (k & 63) & 1 ? top : reach[k] + sign * p[k];
        low = reach[k] < low ? reach[k] : low;
    }
    return low;
}

inline int at_most(const float* x, int n, float limit, int* where, int most) {
    int found = 0;
    for (int k = 0; k < n; ++k)
        if (x[k] <= limit && found++ < most) where[found - 1] = k;
    return found;
}

inline int argmax_positive(const double* x, int n) {
    double best = 0;
    int at = -1;
    for (int k = 0; k < n; ++k)
        if (x[k] > best) best = x[k], at = k;
    return at;
}

inline double least_sum(const double* row, const std::uint32_t* mark, std::uint32_t own, double unit, const double* more, int n, int& at) {
    double best = INF;
    at = -1;
    for (int k = 0; k < n; ++k) {
        const double sum = row[k] * (1.0 - unit * double(std::int32_t((own * mark[k]) >> 1))) + more[k];
        if (sum < best) best = sum, at = k;
    }
    return best;
}

inline double least_sum(const double* row, const double* more, int n, int& at) {
    double best = INF;
    at = -1;
    for (int k = 0; k < n; ++k)
        if (row[k] + more[k] < best) best = row[k] + more[k], at = k;
    return best;
}

inline double relax_over(const double* row, const std::uint32_t* mark, std::uint32_t own, double unit, double base, double name, double* to,
                         double* via, const double* nearest, int n) {
    double limit = -INF;
    for (int k = 0; k < n; ++k) {
        const double sum = base + row[k] * (1.0 - unit * double(std::int32_t((own * mark[k]) >> 1)));
        if (sum < to[k]) to[k] = sum, via[k] = name;
        limit = to[k] - nearest[k] > limit ? to[k] - nearest[k] : limit;
    }
    return limit;
}

inline void relax_through(double* to, double* via, double base, const double* through, double name, int n) {
    for (int k = 0; k < n; ++k)
        if (base + through[k] < to[k]) to[k] = base + through[k], via[k] = name;
}

inline bool relax_row(double* to, std::uint16_t* label, double base, const double* through, int name, int n) {
    bool any = false;
    for (int k = 0; k < n; ++k)
        if (base + through[k] < to[k]) to[k] = base + through[k], label[k] = std::uint16_t(name), any = true;
    return any;
}

#endif

}  // namespace geoattn::GEOATTN_ISA

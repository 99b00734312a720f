// The vector operations that the solver spends its time in, over rows padded to a multiple of eight.
// AVX2 by hand where the compiler targets it, plain loops elsewhere; both give the same bits.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace geoattn::GEOATTN_ISA {

constexpr double INF = std::numeric_limits<double>::infinity();

template <class T> struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t ALIGNMENT{64};
    AlignedAllocator() = default;
    template <class U> AlignedAllocator(const AlignedAllocator<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), ALIGNMENT)); }
    void deallocate(T* p, std::size_t) { ::operator delete(p, ALIGNMENT); }
    template <class U> bool operator==(const AlignedAllocator<U>&) const { return true; }
};
template <class T> using Row = std::vector<T, AlignedAllocator<T>>;

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
inline float search_cut(const float* lengths, int stride, const int* rows, const float* own, int count, const float* p,
                        float sign, const std::uint64_t* side, float* reach) {
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

// The same search over lists: entry e of the k-th list has the length lengths[starts[k] + e] and the column
// columns[starts[k] + e], `own[k]` belongs to its row. `p` is signed already, and infinite for the columns in the side.
// slack[k * width + e] is that of the entry; returns the smallest. `width` and `starts` are multiples of eight.
inline float search_lists(const float* lengths, const std::int32_t* columns, int width, const int* starts, const float* own, int count,
                          const float* p, float* slack) {
    __m256 low = _mm256_set1_ps(std::numeric_limits<float>::infinity());
    for (int k = 0; k < count; ++k) {
        const std::size_t at = std::size_t(starts[k]);
        const __m256 b = _mm256_set1_ps(own[k]);
        for (int e = 0; e < width; e += 8) {
            const __m256i where = _mm256_load_si256(reinterpret_cast<const __m256i*>(columns + at + e));
            const __m256 gap = _mm256_sub_ps(_mm256_load_ps(lengths + at + e), b);
            const __m256 found = _mm256_add_ps(gap, _mm256_i32gather_ps(p, where, 4));
            _mm256_store_ps(slack + std::size_t(k) * width + e, found);
            low = _mm256_min_ps(found, low);
        }
    }
    return lowest(low);
}

// out[k] = sign * p[k]; returns the smallest
inline float signed_copy(const float* p, float sign, float* out, int n) {
    __m256 low = _mm256_set1_ps(std::numeric_limits<float>::infinity());
    const __m256 s = _mm256_set1_ps(sign);
    for (int k = 0; k < n; k += 8) {
        const __m256 x = _mm256_mul_ps(s, _mm256_load_ps(p + k));
        _mm256_store_ps(out + k, x);
        low = _mm256_min_ps(x, low);
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

// min over k of a[k] + b[k]
inline double min_sum(const double* a, const double* b, int n) {
    __m256d low = _mm256_set1_pd(INF);
    for (int k = 0; k < n; k += 4) low = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k), _mm256_load_pd(b + k)), low);
    return lowest(low);
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

// Is there a way from u to v over a third node that is no longer than the edge? Both halves must be strictly shorter
// than the edge: the removals then follow a descending order and cannot disconnect anything.
inline bool matched(const double* from_u, const double* to_v, int n, double edge) {
    const __m256d limit = _mm256_set1_pd(edge);
    for (int k = 0; k < n; k += 4) {
        const __m256d a = _mm256_load_pd(from_u + k), b = _mm256_load_pd(to_v + k);
        const __m256d no_longer = _mm256_cmp_pd(_mm256_add_pd(a, b), limit, _CMP_LE_OQ);
        const __m256d shorter = _mm256_cmp_pd(_mm256_max_pd(a, b), limit, _CMP_LT_OQ);
        if (_mm256_movemask_pd(_mm256_and_pd(no_longer, shorter))) return true;
    }
    return false;
}

// row[k] = min(row[k], base + through[k]): one step of all-pairs shortest paths
inline void relax(double* row, double base, const double* through, int n) {
    const __m256d b = _mm256_set1_pd(base);
    for (int k = 0; k < n; k += 4)
        _mm256_store_pd(row + k, _mm256_min_pd(_mm256_add_pd(b, _mm256_load_pd(through + k)), _mm256_load_pd(row + k)));
}

// The same for four rows that follow each other.
inline void relax_four(double* rows, int stride, const double* base, const double* through, int n) {
    const __m256d b0 = _mm256_set1_pd(base[0]), b1 = _mm256_set1_pd(base[1]), b2 = _mm256_set1_pd(base[2]), b3 = _mm256_set1_pd(base[3]);
    const auto step = [](double* x, __m256d b, __m256d way) { _mm256_store_pd(x, _mm256_min_pd(_mm256_add_pd(b, way), _mm256_load_pd(x))); };
    for (int k = 0; k < n; k += 4, rows += 4) {
        const __m256d way = _mm256_load_pd(through + k);
        step(rows, b0, way), step(rows + stride, b1, way), step(rows + 2 * stride, b2, way), step(rows + 3 * stride, b3, way);
    }
}

#else

inline float search_cut(const float* lengths, int stride, const int* rows, const float* own, int count, const float* p,
                        float sign, const std::uint64_t* side, float* reach) {
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

inline float search_lists(const float* lengths, const std::int32_t* columns, int width, const int* starts, const float* own, int count,
                          const float* p, float* slack) {
    float low = std::numeric_limits<float>::infinity();
    for (int k = 0; k < count; ++k)
        for (int e = 0; e < width; ++e) {
            const std::size_t at = std::size_t(starts[k]) + e;
            const float found = (lengths[at] - own[k]) + p[columns[at]];
            slack[std::size_t(k) * width + e] = found;
            low = found < low ? found : low;
        }
    return low;
}

inline float signed_copy(const float* p, float sign, float* out, int n) {
    float low = std::numeric_limits<float>::infinity();
    for (int k = 0; k < n; ++k) {
        out[k] = sign * p[k];
        low = out[k] < low ? out[k] : low;
    }
    return low;
}

inline int at_most(const float* x, int n, float limit, int* where, int most) {
    int found = 0;
    for (int k = 0; k < n; ++k)
        if (x[k] <= limit && found++ < most) where[found - 1] = k;
    return found;
}

inline double min_sum(const double* a, const double* b, int n) {
    double low = INF;
    for (int k = 0; k < n; ++k) low = a[k] + b[k] < low ? a[k] + b[k] : low;
    return low;
}

inline int argmax_positive(const double* x, int n) {
    double best = 0;
    int at = -1;
    for (int k = 0; k < n; ++k)
        if (x[k] > best) best = x[k], at = k;
    return at;
}

inline bool matched(const double* from_u, const double* to_v, int n, double edge) {
    for (int k = 0; k < n; ++k)
        if (from_u[k] + to_v[k] <= edge && from_u[k] < edge && to_v[k] < edge) return true;
    return false;
}

inline void relax(double* row, double base, const double* through, int n) {
    for (int k = 0; k < n; ++k) {
        const double sum = base + through[k];
        row[k] = sum < row[k] ? sum : row[k];
    }
}

inline void relax_four(double* rows, int stride, const double* base, const double* through, int n) {
    for (int r = 0; r < 4; ++r) relax(rows + r * stride, base[r], through, n);
}

#endif

}  // namespace geoattn::GEOATTN_ISA

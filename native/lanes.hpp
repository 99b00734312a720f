// The four vector operations that the solver spends its time in, over rows padded to a multiple of four doubles.
// AVX2 by hand where the compiler targets it, plain loops elsewhere; both give the same bits.
#pragma once
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

inline int padded(int n) { return (n + 3) / 4 * 4; }

#if defined(__AVX2__)

inline double lowest(__m256d x) {
    const __m128d pair = _mm_min_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_min_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

// min over k of a[k] + b[k]
inline double min_sum(const double* a, const double* b, int n) {
    const __m256d top = _mm256_set1_pd(INF);
    __m256d m0 = top, m1 = top, m2 = top, m3 = top;
    int k = 0;
    for (; k + 16 <= n; k += 16) {
        m0 = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k), _mm256_load_pd(b + k)), m0);
        m1 = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k + 4), _mm256_load_pd(b + k + 4)), m1);
        m2 = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k + 8), _mm256_load_pd(b + k + 8)), m2);
        m3 = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k + 12), _mm256_load_pd(b + k + 12)), m3);
    }
    for (; k < n; k += 4) m0 = _mm256_min_pd(_mm256_add_pd(_mm256_load_pd(a + k), _mm256_load_pd(b + k)), m0);
    return lowest(_mm256_min_pd(_mm256_min_pd(m0, m1), _mm256_min_pd(m2, m3)));
}

// first k with a[k] + b[k] == value; it must exist
inline int find_sum(const double* a, const double* b, double value) {
    const __m256d target = _mm256_set1_pd(value);
    for (int k = 0;; k += 4) {
        const __m256d sum = _mm256_add_pd(_mm256_load_pd(a + k), _mm256_load_pd(b + k));
        const int hit = _mm256_movemask_pd(_mm256_cmp_pd(sum, target, _CMP_EQ_OQ));
        if (hit) return k + __builtin_ctz(hit);
    }
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

// row[k] = min(row[k], base + through[k]): one step of all-pairs shortest paths
inline void relax(double* row, double base, const double* through, int n) {
    const __m256d b = _mm256_set1_pd(base);
    for (int k = 0; k < n; k += 4)
        _mm256_store_pd(row + k, _mm256_min_pd(_mm256_add_pd(b, _mm256_load_pd(through + k)), _mm256_load_pd(row + k)));
}

#else

inline double min_sum(const double* a, const double* b, int n) {
    double best[4] = {INF, INF, INF, INF};
    for (int k = 0; k < n; k += 4)
        for (int l = 0; l < 4; ++l) {
            const double sum = a[k + l] + b[k + l];
            best[l] = sum < best[l] ? sum : best[l];
        }
    double low = best[0];
    for (int l = 1; l < 4; ++l) low = best[l] < low ? best[l] : low;
    return low;
}

inline int find_sum(const double* a, const double* b, double value) {
    int k = 0;
    while (a[k] + b[k] != value) ++k;
    return k;
}

inline int argmax_positive(const double* x, int n) {
    double best = 0;
    int at = -1;
    for (int k = 0; k < n; ++k)
        if (x[k] > best) best = x[k], at = k;
    return at;
}

inline void relax(double* row, double base, const double* through, int n) {
    for (int k = 0; k < n; ++k) {
        const double sum = base + through[k];
        row[k] = sum < row[k] ? sum : row[k];
    }
}

#endif

}  // namespace geoattn::GEOATTN_ISA

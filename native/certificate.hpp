// What proves that potentials are feasible: p(a) - p(b) <= d(a, b) for all nodes.
//
// The edges of an optimal tree are tight. Where they are the only ones that are nearly tight, all others have room to spare, and no
// way over edges is shorter than the potentials allow by more than the edges of the tree fall short of them together. A count
// in float proves that, in less than half of the time that all distances take. AVX2 by hand where the compiler targets it,
// plain loops elsewhere; both give the same bits.
#pragma once
#include "lanes.hpp"

namespace geoattn::GEOATTN_ISA {

#if defined(__AVX2__)

// min over pairs of rows of d(a, b) - |p(a) - p(b)|, d symmetric with zeros on the diagonal and padded with infinity
inline double min_gap(const double* d, const double* p, int n, int stride) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    __m256d left = _mm256_setzero_pd(), right = left;
    for (int k = 0; k < n; k += 8) {  // columns outside: few loops, and long ones
        const __m256d p0 = _mm256_load_pd(p + k), p1 = _mm256_load_pd(p + k + 4);
        const double* row = d + k;
        for (int a = 0, rows = std::min(n, k + 7); a < rows; ++a, row += stride) {
            const __m256d own = _mm256_set1_pd(p[a]);
            left = _mm256_min_pd(_mm256_sub_pd(_mm256_load_pd(row), _mm256_andnot_pd(sign, _mm256_sub_pd(p0, own))), left);
            right = _mm256_min_pd(_mm256_sub_pd(_mm256_load_pd(row + 4), _mm256_andnot_pd(sign, _mm256_sub_pd(p1, own))), right);
        }
    }
    return lowest(_mm256_min_pd(left, right));
}

// How many of the lengths of EdgesOnce are less than |p(a) - p(b)|
inline int count_shorter(const float* lengths, const float* p, int n) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256i even = _mm256_setzero_si256(), odd = even;
    const auto shorter = [&](const float* length, __m256 here, float there) {
        const __m256 apart = _mm256_andnot_ps(sign, _mm256_sub_ps(here, _mm256_set1_ps(there)));
        return _mm256_castps_si256(_mm256_cmp_ps(_mm256_load_ps(length), apart, _CMP_LT_OQ));
    };
    const int alone = n % 8 == 1 ? n - 1 : n;
    for (int k = 0; k < alone; k += 8) {
        const __m256 here = _mm256_load_ps(p + k);
        const int rows = std::min(n, k + 7);
        int a = 0;
        for (; a + 2 <= rows; a += 2, lengths += 16) {
            even = _mm256_sub_epi32(even, shorter(lengths, here, p[a]));
            odd = _mm256_sub_epi32(odd, shorter(lengths + 8, here, p[a + 1]));
        }
        if (a < rows) even = _mm256_sub_epi32(even, shorter(lengths, here, p[a])), lengths += 8;
    }
    if (alone < n)
        for (int a = 0; a < alone; a += 8, lengths += 8) even = _mm256_sub_epi32(even, shorter(lengths, _mm256_load_ps(p + a), p[alone]));
    const __m256i both = _mm256_add_epi32(even, odd);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

#else

inline double min_gap(const double* d, const double* p, int n, int stride) {
    double low = 0;
    for (int a = 0; a < n; ++a, d += stride)
        for (int k = a + 1; k < n; ++k) {
            const double gap = d[k] - (p[k] < p[a] ? p[a] - p[k] : p[k] - p[a]);
            low = gap < low ? gap : low;
        }
    return low;
}

inline int count_shorter(const float* lengths, const float* p, int n) {
    const auto shorter = [](float length, float here, float there) { return length < (here < there ? there - here : here - there); };
    const int alone = n % 8 == 1 ? n - 1 : n;
    int count = 0;
    for (int k = 0; k < alone; k += 8)
        for (int a = 0; a < std::min(n, k + 7); ++a, lengths += 8)
            for (int c = 0; c < 8; ++c) count += shorter(lengths[c], p[k + c], p[a]);
    if (alone < n)
        for (int a = 0; a < alone; ++a) count += shorter(lengths[a], p[a], p[alone]);
    return count;
}

#endif

// The edges of an undirected network, each once, in blocks of eight columns k, each with its rows a < k + 7. A last column that
// would be alone in its block follows as it is: a class token and 64 patches.
class EdgesOnce {
  public:
    bool empty() const { return lengths_.empty(); }

    // Of `out`, infinite where there is no edge; times `scale` no length, and no difference of potentials, is more than about 1.
    void fill(const double* out, int n, int stride, double scale) {
        lengths_.clear();
        lengths_.reserve(std::size_t(stride) * (stride / 2 + 4));
        const auto put = [&](int a, int b) { lengths_.push_back(float((a < b ? out[std::size_t(a) * stride + b] : INF) * scale) - LOOSE); };
        const int alone = n % 8 == 1 ? n - 1 : n;
        for (int k = 0; k < alone; k += 8)
            for (int a = 0; a < std::min(n, k + 7); ++a)
                for (int b = k; b < k + 8; ++b) put(a, b);  // beyond n: infinite, too
        for (int a = 0; alone < n && a < alone; ++a) put(a, alone);
    }

    // How many are tight, or nearly; p is scaled like the lengths, and padded.
    int nearly_tight(const float* p, int n) const { return count_shorter(lengths_.data(), p, n); }

  private:
    // A float of a length and two of potentials are off by less than half of it together: none that is tight is overlooked, and all
    // that are not counted have room to spare.
    static constexpr float LOOSE = 1e-6f;
    Row<float> lengths_;
};

}  // namespace geoattn::GEOATTN_ISA

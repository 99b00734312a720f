// The vector operations of the simplex on cuts: first looks on lengths in 16 bits.
// AVX2 by hand where the compiler targets it, plain loops elsewhere; both give the same bits.
#pragma once
#include <algorithm>
#include <cmath>

#include "bit_sets.hpp"

namespace geoattn::GEOATTN_ISA {

#if defined(__AVX2__)

typedef std::int16_t Sixteen __attribute__((vector_size(32)));  // across a loop, __m256i costs GCC a copy of each register

inline __m256i load16(const std::int16_t* x) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(x)); }

inline __m256i members(const std::uint64_t* set, int k) {  // lanes k to k + 15: all ones where the set has the bit
    const __m256i lane = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    const __m256i word = _mm256_set1_epi64x(std::int64_t(set[k / 64]));
    const __m256i bits = _mm256_shuffle_epi8(word, _mm256_set1_epi16(std::int16_t((k % 64 / 8) | (k % 64 / 8 + 1) << 8)));
    return _mm256_cmpeq_epi16(_mm256_and_si256(bits, lane), lane);
}

// row[k] = x, as a vector: a vector that is read soon after would have to wait for a part of it.
inline void put(std::int16_t* row, unsigned k, std::int16_t x) {
    alignas(32) static constexpr std::int16_t ONE[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1};
    const __m256i lane = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ONE + 16 - k % 16));
    __m256i* at = reinterpret_cast<__m256i*>(row + k / 16 * 16);
    _mm256_store_si256(at, _mm256_blendv_epi8(_mm256_load_si256(at), _mm256_set1_epi16(x), lane));
}

// plus[k] = scale * x[k], rounded, and minus[k] = -plus[k]; n is a multiple of eight. Returns whether all are within +-most.
inline bool round_all(const double* x, double scale, int n, int most, std::int16_t* plus, std::int16_t* minus) {
    const __m256d s = _mm256_set1_pd(scale);
    __m128i largest = _mm_setzero_si128();
    for (int k = 0; k < n; k += 8) {
        const __m128i low = _mm256_cvtpd_epi32(_mm256_mul_pd(_mm256_load_pd(x + k), s));
        const __m128i high = _mm256_cvtpd_epi32(_mm256_mul_pd(_mm256_load_pd(x + k + 4), s));
        const __m128i rounded = _mm_packs_epi32(low, high);
        const __m128i turned = _mm_subs_epi16(_mm_setzero_si128(), rounded);
        _mm_store_si128(reinterpret_cast<__m128i*>(plus + k), rounded);
        _mm_store_si128(reinterpret_cast<__m128i*>(minus + k), turned);
        largest = _mm_max_epi16(largest, _mm_max_epi16(rounded, turned));
    }
    return _mm_movemask_epi8(_mm_cmpgt_epi16(largest, _mm_set1_epi16(std::int16_t(most)))) == 0;
}

// rounded[k] = scale * x[k], at most 32767; n is a multiple of eight.
inline void round_lengths(const double* x, double scale, int n, std::int16_t* rounded) {
    const __m256d s = _mm256_set1_pd(scale), most = _mm256_set1_pd(32767);
    for (int k = 0; k < n; k += 8) {
        const __m128i low = _mm256_cvtpd_epi32(_mm256_min_pd(_mm256_mul_pd(_mm256_load_pd(x + k), s), most));
        const __m128i high = _mm256_cvtpd_epi32(_mm256_min_pd(_mm256_mul_pd(_mm256_load_pd(x + k + 4), s), most));
        _mm_store_si128(reinterpret_cast<__m128i*>(rounded + k), _mm_packs_epi32(low, high));
    }
}

template <int V, class Hit> [[gnu::always_inline]] inline Hits<V> hits_of(Extent<V>& extent, int slot, Hit hit) {
    Hits<V> hits(nullptr, 0);
    if constexpr (V == 0) hits = Hits<V>(extent.bits.data() + slot * extent.words(), extent.words());
    const int vectors = extent.seen();
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v += 4) {
        const auto pair = [&](int k) -> std::uint64_t {
            if (k >= vectors) return 0;
            return std::uint32_t(_mm256_movemask_epi8(_mm256_packs_epi16(hit(k), k + 1 < vectors ? hit(k + 1) : _mm256_setzero_si256())));
        };
        hits.word[v / 4] = pair(v) | pair(v + 2) << 32;
    }
    return hits;
}

inline __m128i lowest16(__m256i x) {  // in the first lane
    const __m128i top_bit = _mm_set1_epi16(-32768), half = _mm_min_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(half, top_bit)), top_bit);
}

// The places where x + y comes within `error` of its least value, and that. Sums saturate.
template <int V> inline Hits<V> nearest(Extent<V>& extent, const std::int16_t* x, const std::int16_t* y, std::int16_t error, int& least) {
    const int vectors = extent.seen();
    __m256i kept[V > 0 ? V : 1], low = _mm256_set1_epi16(32767), also = low;
    const auto sum = [&](int v) { return _mm256_adds_epi16(load16(x + 16 * v), load16(y + 16 * v)); };
    if constexpr (V > 0) {
#pragma GCC unroll 32
        for (int v = 0; v < V; ++v) low = _mm256_min_epi16(low, kept[v] = sum(v));
    } else {
        int v = 0;
        for (; v + 2 <= vectors; v += 2) low = _mm256_min_epi16(low, sum(v)), also = _mm256_min_epi16(also, sum(v + 1));
        if (v < vectors) low = _mm256_min_epi16(low, sum(v));
        low = _mm256_min_epi16(low, also);
    }
    const __m128i lowest = lowest16(low);
    least = std::int16_t(_mm_cvtsi128_si32(lowest));
    const __m256i bound = _mm256_broadcastw_epi16(_mm_adds_epi16(lowest, _mm_set1_epi16(std::int16_t(error + 1))));
    return hits_of<V>(extent, 0, [&](int v) {
        if constexpr (V > 0) return _mm256_cmpgt_epi16(bound, kept[v]);
        else return _mm256_cmpgt_epi16(bound, sum(v));
    });
}

// The search across a cut on lengths in 16 bits: for a column k that is not `barred`, the least over the rows r in `side` of
// (lengths(r, k) + own[r]) + other[k]. Sums saturate. Lists the rows and counts them; returns the columns within `error` of
// the least, and in `limit` how far that is.
template <int V>
inline Hits<V> search_cut(Extent<V>& extent, const std::int16_t* lengths, const std::uint64_t* side, const std::uint64_t* barred,
                          const std::int16_t* own, const std::int16_t* other, std::int16_t error, std::int32_t* list, int& count,
                          int& limit) {
    const __m256i top = _mm256_set1_epi16(32767);
    __m256i low = top;
    count = 0;
    const auto beyond = [&](__m256i lowest) {
        const __m128i bound = _mm_adds_epi16(lowest16(lowest), _mm_set1_epi16(std::int16_t(error + 1)));
        limit = std::int16_t(_mm_cvtsi128_si32(bound)) - 1;
        return _mm256_broadcastw_epi16(bound);
    };
    if constexpr (V > 0) {
        constexpr int FIRST = V <= 13 ? V : (V + 1) / 2, WORDS = Extent<V>::WORDS;  // as many as there are registers
        Sixteen best[V];
#pragma GCC unroll 32
        for (int v = 0; v < V; ++v) best[v] = Sixteen(top);
        int n = 0;
        auto look = [&](int r) {
            list[n++] = r;
            const __m256i b = _mm256_set1_epi16(own[r]);
            const std::int16_t* row = lengths + r * 16 * V;
#pragma GCC unroll 16
            for (int v = 0; v < FIRST; ++v)
                best[v] = Sixteen(_mm256_min_epi16(__m256i(best[v]), _mm256_adds_epi16(b, load16(row + 16 * v))));
        };
        for (Members<WORDS> rows(side); rows;) look(rows.next());
        if constexpr (V > 4 * WORDS)
            if (side[WORDS]) look(64 * WORDS);
        if constexpr (V > FIRST)
            for (int k = 0; k < n; ++k) {
                const __m256i b = _mm256_set1_epi16(own[list[k]]);
                const std::int16_t* row = lengths + list[k] * 16 * V;
#pragma GCC unroll 16
                for (int v = FIRST; v < V; ++v)
                    best[v] = Sixteen(_mm256_min_epi16(__m256i(best[v]), _mm256_adds_epi16(b, load16(row + 16 * v))));
            }
        count = n;
#pragma GCC unroll 32
        for (int v = 0; v < V; ++v) {
            const __m256i sum = _mm256_adds_epi16(__m256i(best[v]), load16(other + 16 * v));
            best[v] = Sixteen(_mm256_blendv_epi8(sum, top, members(barred, 16 * v)));
            low = _mm256_min_epi16(low, __m256i(best[v]));
        }
        const __m256i bound = beyond(low);
        return hits_of<V>(extent, 0, [&](int v) { return _mm256_cmpgt_epi16(bound, __m256i(best[v])); });
    } else {
        for (Members<0> rows(side, extent.side_words()); rows;) list[count++] = rows.next();
        const std::size_t stride = std::size_t(extent.stride());
        const int vectors = extent.seen();
        std::int16_t* best = extent.best.data();
        const auto finish = [&](__m256i least, int v) {
            const __m256i sum = _mm256_adds_epi16(least, load16(other + 16 * v));
            least = _mm256_blendv_epi8(sum, top, members(barred, 16 * v));
            _mm256_store_si256(reinterpret_cast<__m256i*>(best + 16 * v), least);
            low = _mm256_min_epi16(low, least);
        };
        int v = 0;
        for (; v + 8 <= vectors; v += 8) {  // columns outside, rows inside: nothing is stored on the way
            Sixteen m[8];
#pragma GCC unroll 8
            for (int k = 0; k < 8; ++k) m[k] = Sixteen(top);
            for (int r = 0; r < count; ++r) {
                const __m256i b = _mm256_set1_epi16(own[list[r]]);
                const std::int16_t* row = lengths + list[r] * stride + 16 * v;
#pragma GCC unroll 8
                for (int k = 0; k < 8; ++k) m[k] = Sixteen(_mm256_min_epi16(__m256i(m[k]), _mm256_adds_epi16(b, load16(row + 16 * k))));
            }
#pragma GCC unroll 8
            for (int k = 0; k < 8; ++k) finish(__m256i(m[k]), v + k);
        }
        for (; v < vectors; ++v) {
            __m256i m = top;
            for (int r = 0; r < count; ++r)
                m = _mm256_min_epi16(m, _mm256_adds_epi16(_mm256_set1_epi16(own[list[r]]), load16(lengths + list[r] * stride + 16 * v)));
            finish(m, v);
        }
        const __m256i bound = beyond(low);
        return hits_of<V>(extent, 0, [&](int k) { return _mm256_cmpgt_epi16(bound, load16(best + 16 * k)); });
    }
}

// The entries of `set` where (x + own) + other is at most `limit`, which is less than that of any sum that would saturate.
template <int V>
inline Hits<V> at_most(Extent<V>& extent, const std::int16_t* x, const std::int16_t* own, std::int16_t other, const std::uint64_t* set,
                       int limit) {
    const __m256i bound = _mm256_set1_epi16(std::int16_t(limit + 1 - other));
    return hits_of<V>(extent, 1, [&](int v) {
        const __m256i sum = _mm256_adds_epi16(load16(own + 16 * v), load16(x + 16 * v));
        return _mm256_and_si256(members(set, 16 * v), _mm256_cmpgt_epi16(bound, sum));
    });
}

// How many entries of the next `rows` rows x have (x + own) + other <= limit; `other` is one for each row.
template <int V>
inline int count_at_most(const Extent<V>& extent, const std::int16_t* x, int rows, const std::int16_t* own, const std::int16_t* other,
                         int limit) {
    const int vectors = extent.vectors();
    __m256i counts = _mm256_setzero_si256();
    for (int r = 0; r < rows; ++r, x += extent.stride()) {
        const __m256i bound = _mm256_set1_epi16(std::int16_t(limit + 1 - other[r]));
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v)
            counts = _mm256_sub_epi16(counts, _mm256_cmpgt_epi16(bound, _mm256_adds_epi16(load16(own + 16 * v), load16(x + 16 * v))));
    }
    const __m256i wide = _mm256_madd_epi16(counts, _mm256_set1_epi16(1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

// The largest of the entries, one for each column, that are not in `set`; at least 0.
template <int V>
[[gnu::always_inline]] inline std::int32_t largest(const Extent<V>& extent, const std::int32_t* x, const std::uint64_t* set) {
    const int count = V > 0 ? std::min(16 * V, 64 * Extent<V>::WORDS) : extent.columns();
    const __m256i zero = _mm256_setzero_si256(), to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i most[2] = {zero, zero};
#pragma GCC unroll 16
    for (int k = 0; k < count; k += 8) {
        const __m256i members = _mm256_set1_epi32(int(set[k >> 6] >> (k & 32)));
        const __m256i in_set = _mm256_sllv_epi32(members, _mm256_sub_epi32(to_top, _mm256_set1_epi32(k & 31)));  // the top bit
        const __m256 entries = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(x + k)));
        const __m256 others = _mm256_blendv_ps(entries, _mm256_castsi256_ps(zero), _mm256_castsi256_ps(in_set));
        most[k / 8 % 2] = _mm256_max_epi32(most[k / 8 % 2], _mm256_castps_si256(others));
    }
    const __m256i both = _mm256_max_epi32(most[0], most[1]);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

#else

inline std::int16_t saturated(int x) { return std::int16_t(x > 32767 ? 32767 : x < -32768 ? -32768 : x); }

template <int V, class Hit> [[gnu::always_inline]] inline Hits<V> hits_of(Extent<V>& extent, int slot, Hit hit) {
    Hits<V> hits(nullptr, 0);
    if constexpr (V == 0) hits = Hits<V>(extent.bits.data() + slot * extent.words(), extent.words());
    std::fill_n(hits.word, hits.words(), 0);
    for (int k = 0; k < 16 * extent.seen(); ++k) hits.word[k / 64] |= std::uint64_t(hit(k)) << (place_of_hit(k) % 64);
    return hits;
}

inline void put(std::int16_t* row, unsigned k, std::int16_t x) { row[k] = x; }

inline bool round_all(const double* x, double scale, int n, int most, std::int16_t* plus, std::int16_t* minus) {
    bool within = true;
    for (int k = 0; k < n; ++k) {
        plus[k] = saturated(int(std::lrint(std::clamp(x[k] * scale, -1e6, 1e6))));
        minus[k] = saturated(-plus[k]);
        within &= std::abs(int(plus[k])) <= most;
    }
    return within;
}

inline void round_lengths(const double* x, double scale, int n, std::int16_t* rounded) {
    for (int k = 0; k < n; ++k) rounded[k] = std::int16_t(std::lrint(std::min(x[k] * scale, 32767.0)));
}

template <int V> inline Hits<V> nearest(Extent<V>& extent, const std::int16_t* x, const std::int16_t* y, std::int16_t error, int& least) {
    std::int16_t low = 32767;
    for (int k = 0; k < 16 * extent.seen(); ++k) low = std::min(low, saturated(x[k] + y[k]));
    least = low;
    const std::int16_t bound = saturated(low + error + 1);
    return hits_of<V>(extent, 0, [&](int k) { return saturated(x[k] + y[k]) < bound; });
}

template <int V>
inline Hits<V> search_cut(Extent<V>& extent, const std::int16_t* lengths, const std::uint64_t* side, const std::uint64_t* barred,
                          const std::int16_t* own, const std::int16_t* other, std::int16_t error, std::int32_t* list, int& count,
                          int& limit) {
    static thread_local std::vector<std::int16_t> best;
    std::int16_t low = 32767;
    best.assign(std::size_t(extent.columns()), low);
    count = 0;
    for (int r = 0; r < extent.columns(); ++r) {
        if (!has(side, r)) continue;
        list[count++] = r;
        const std::int16_t* row = lengths + std::size_t(r) * extent.stride();
        for (int k = 0; k < 16 * extent.seen(); ++k) best[k] = std::min(best[k], saturated(own[r] + row[k]));
    }
    for (int k = 0; k < 16 * extent.seen(); ++k) {
        best[k] = has(barred, k) ? std::int16_t(32767) : saturated(best[k] + other[k]);
        low = std::min(low, best[k]);
    }
    const std::int16_t bound = saturated(low + error + 1);
    limit = bound - 1;
    return hits_of<V>(extent, 0, [&](int k) { return best[k] < bound; });
}

template <int V>
inline Hits<V> at_most(Extent<V>& extent, const std::int16_t* x, const std::int16_t* own, std::int16_t other, const std::uint64_t* set,
                       int limit) {
    return hits_of<V>(extent, 1, [&](int k) { return has(set, k) && saturated(own[k] + x[k]) < std::int16_t(limit + 1 - other); });
}

template <int V>
inline int count_at_most(const Extent<V>& extent, const std::int16_t* x, int rows, const std::int16_t* own, const std::int16_t* other,
                         int limit) {
    int count = 0;
    for (int r = 0; r < rows; ++r, x += extent.stride())
        for (int k = 0; k < extent.columns(); ++k) count += saturated(own[k] + x[k]) < std::int16_t(limit + 1 - other[r]);
    return count;
}

template <int V> inline std::int32_t largest(const Extent<V>& extent, const std::int32_t* x, const std::uint64_t* set) {
    const int count = V > 0 ? std::min(16 * V, 64 * Extent<V>::WORDS) : extent.columns();
    std::int32_t most = 0;
    for (int k = 0; k < count; ++k) most = x[k] > most && !has(set, k) ? x[k] : most;
    return most;
}

#endif

}  // namespace geoattn::GEOATTN_ISA

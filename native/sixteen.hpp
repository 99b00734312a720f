// The vector operations of the simplex on cuts: sets of up to 256 members, and first looks on lengths in 16 bits.
// AVX2 by hand where the compiler targets it, plain loops elsewhere; both give the same bits.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "lanes.hpp"

namespace geoattn::GEOATTN_ISA {

// The members of a set in one loop: a loop for each word would end where the processor does not expect it. Of an empty set,
// next() gives the number beyond the last word.
template <int WORDS> class Members {
  public:
    explicit Members(const std::uint64_t* set) {
        int k = 0;
        for (int w = 0; w < WORDS; ++w) {
            word_[k] = set[w];
            base_[k] = 64 * w;
            k += set[w] != 0;
        }
        word_[k] = word_[k + 1] = 0;
        left_ = word_[0];
    }
    explicit operator bool() const { return left_ != 0; }
    int next() {
        const int member = base_[at_] + std::countr_zero(left_);
        left_ &= left_ - 1;
        const std::uint64_t ahead = word_[at_ + 1];
        at_ += left_ == 0;
        left_ = left_ ? left_ : ahead;
        return member;
    }

  private:
    std::uint64_t word_[WORDS + 2], left_;
    int base_[WORDS + 2], at_ = 0;
};
template <> class Members<1> {
  public:
    explicit Members(const std::uint64_t* set) : left_(*set) {}
    explicit operator bool() const { return left_ != 0; }
    int next() {
        const int member = std::countr_zero(left_);
        left_ &= left_ - 1;
        return member;
    }

  private:
    std::uint64_t left_;
};

// Entries of V vectors of sixteen, a bit each. Bits 3 and 4 of a place have changed places, as the processor delivers them.
template <int V> struct Hits {
    static constexpr int WORDS = (V + 3) / 4;
    std::uint64_t word[WORDS];
    static constexpr auto PLACES = [] {
        std::array<std::uint16_t, 64 * WORDS> places{};
        for (int bit = 0; bit < 64 * WORDS; ++bit) places[bit] = std::uint16_t((bit & ~24) | (bit & 8) << 1 | (bit & 16) >> 1);
        return places;
    }();
    static int place(int bit) { return PLACES[bit]; }
    static constexpr bool ONE_MORE = V == 5;  // a class token and 64 patches: of the last word only the first bit is used
    bool single() const {
        if constexpr (ONE_MORE) return std::popcount(word[0]) + int(word[1]) == 1;
        int sum = 0;
        for (std::uint64_t w : word) sum += std::popcount(w);
        return sum == 1;
    }
    int first() const {  // of at least one
        if constexpr (ONE_MORE) return place(std::countr_zero(word[0]));  // 64 if that is empty
        int bit = 0;
        for (int w = WORDS - 1; w >= 0; --w) bit = word[w] ? w * 64 + std::countr_zero(word[w]) : bit;
        return place(bit);
    }
    template <class Visit> void each(Visit visit) const {
        for (int w = 0; w < WORDS; ++w)
            for (std::uint64_t left = word[w]; left; left &= left - 1) visit(place(w * 64 + std::countr_zero(left)));
    }
};

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

// plus[k] = scale * x[k], rounded, and minus[k] = -plus[k]; n is a multiple of eight.
inline void round_all(const double* x, double scale, int n, std::int16_t* plus, std::int16_t* minus) {
    const __m256d s = _mm256_set1_pd(scale);
    for (int k = 0; k < n; k += 8) {
        const __m128i low = _mm256_cvtpd_epi32(_mm256_mul_pd(_mm256_load_pd(x + k), s));
        const __m128i high = _mm256_cvtpd_epi32(_mm256_mul_pd(_mm256_load_pd(x + k + 4), s));
        const __m128i rounded = _mm_packs_epi32(low, high);
        _mm_store_si128(reinterpret_cast<__m128i*>(plus + k), rounded);
        _mm_store_si128(reinterpret_cast<__m128i*>(minus + k), _mm_sub_epi16(_mm_setzero_si128(), rounded));
    }
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

// A set in registers, for operations on all of its words
template <int WORDS> struct Words {
    typedef std::uint64_t Register __attribute__((vector_size(8 * WORDS)));
    Register word;
    static Words of(const std::uint64_t* set) {
        Words x;
        std::memcpy(&x.word, set, sizeof x.word);
        return x;
    }
    void to(std::uint64_t* set) const { std::memcpy(set, &word, sizeof word); }
    Words operator^(Words b) const { return {word ^ b.word}; }
    Words operator|(Words b) const { return {word | b.word}; }
    Words operator&(Words b) const { return {word & b.word}; }
};

template <int V, class Hit> inline Hits<V> hits_of(Hit hit) {
    Hits<V> hits;
#pragma GCC unroll 16
    for (int v = 0; v < V; v += 4) {
        const auto pair = [&](int k) -> std::uint64_t {
            if (k >= V) return 0;
            return std::uint32_t(_mm256_movemask_epi8(_mm256_packs_epi16(hit(k), k + 1 < V ? hit(k + 1) : _mm256_setzero_si256())));
        };
        hits.word[v / 4] = pair(v) | pair(v + 2) << 32;
    }
    return hits;
}

inline __m128i lowest16(__m256i x) {  // in the first lane
    const __m128i top_bit = _mm_set1_epi16(-32768), half = _mm_min_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(half, top_bit)), top_bit);
}

// The places where x + y comes within `error` of its least value. Sums saturate.
template <int V> inline Hits<V> nearest(const std::int16_t* x, const std::int16_t* y, std::int16_t error) {
    __m256i sum[V], low = _mm256_set1_epi16(32767);
#pragma GCC unroll 32
    for (int v = 0; v < V; ++v) {
        sum[v] = _mm256_adds_epi16(load16(x + 16 * v), load16(y + 16 * v));
        low = _mm256_min_epi16(low, sum[v]);
    }
    const __m256i bound = _mm256_broadcastw_epi16(_mm_adds_epi16(lowest16(low), _mm_set1_epi16(std::int16_t(error + 1))));
    return hits_of<V>([&](int v) { return _mm256_cmpgt_epi16(bound, sum[v]); });
}

// The search across a cut on lengths in 16 bits, in rows of V vectors: for a column k outside `side`, the least over the
// rows r in `side` of (lengths(r, k) + own[r]) + other[k]. Sums saturate. Lists the rows and counts them; returns the
// columns within `error` of the least, and in `limit` how far that is.
template <int V, int WORDS>
inline Hits<V> search_cut(const std::int16_t* lengths, const std::uint64_t* side, const std::int16_t* own, const std::int16_t* other,
                          std::int16_t error, std::int32_t* list, int& count, int& limit) {
    constexpr int FIRST = V <= 13 ? V : (V + 1) / 2;  // as many as there are registers
    Sixteen best[V];
#pragma GCC unroll 32
    for (int v = 0; v < V; ++v) best[v] = Sixteen(_mm256_set1_epi16(32767));
    int n = 0;
    auto look = [&](int r) {
        list[n++] = r;
        const __m256i b = _mm256_set1_epi16(own[r]);
        const std::int16_t* row = lengths + r * 16 * V;
#pragma GCC unroll 16
        for (int v = 0; v < FIRST; ++v) best[v] = Sixteen(_mm256_min_epi16(__m256i(best[v]), _mm256_adds_epi16(b, load16(row + 16 * v))));
    };
    Members<WORDS> rows(side);
    do look(rows.next());  // where the last node, beyond these words, is all there is: that one
    while (rows);
    if constexpr (V > 4 * WORDS)
        if (side[WORDS] && list[0] != 64 * WORDS) look(64 * WORDS);
    if constexpr (V > FIRST)
        for (int k = 0; k < n; ++k) {
            const __m256i b = _mm256_set1_epi16(own[list[k]]);
            const std::int16_t* row = lengths + list[k] * 16 * V;
#pragma GCC unroll 16
            for (int v = FIRST; v < V; ++v) best[v] = Sixteen(_mm256_min_epi16(__m256i(best[v]), _mm256_adds_epi16(b, load16(row + 16 * v))));
        }
    count = n;
    const __m256i top = _mm256_set1_epi16(32767);
    __m256i low = top;
#pragma GCC unroll 32
    for (int v = 0; v < V; ++v) {
        const __m256i sum = _mm256_adds_epi16(__m256i(best[v]), load16(other + 16 * v));
        best[v] = Sixteen(_mm256_blendv_epi8(sum, top, members(side, 16 * v)));
        low = _mm256_min_epi16(low, __m256i(best[v]));
    }
    const __m128i beyond = _mm_adds_epi16(lowest16(low), _mm_set1_epi16(std::int16_t(error + 1)));
    limit = std::int16_t(_mm_cvtsi128_si32(beyond)) - 1;
    const __m256i bound = _mm256_broadcastw_epi16(beyond);
    return hits_of<V>([&](int v) { return _mm256_cmpgt_epi16(bound, __m256i(best[v])); });
}

// The entries of `set` where (x + own) + other is at most `limit`, which is less than that of any sum that would saturate.
template <int V>
inline Hits<V> at_most(const std::int16_t* x, const std::int16_t* own, std::int16_t other, const std::uint64_t* set, int limit) {
    const __m256i bound = _mm256_set1_epi16(std::int16_t(limit + 1 - other));
    return hits_of<V>([&](int v) {
        const __m256i sum = _mm256_adds_epi16(load16(own + 16 * v), load16(x + 16 * v));
        return _mm256_and_si256(members(set, 16 * v), _mm256_cmpgt_epi16(bound, sum));
    });
}

// rank[v]: how many of the first n keys are smaller than key[v].
template <int V> inline void ranks(const std::int16_t* key, int n, std::int16_t* rank) {
    constexpr int PART = V <= 7 ? V : 7;  // as many as there are registers, twice
    for (int from = 0; from < V; from += PART) {
        Sixteen sum[PART] = {}, own[PART];
#pragma GCC unroll 8
        for (int k = 0; k < PART; ++k) own[k] = Sixteen(load16(key + 16 * std::min(from + k, V - 1)));
        for (int u = 0; u < n; ++u) {
            const __m256i other = _mm256_set1_epi16(key[u]);
#pragma GCC unroll 8
            for (int k = 0; k < PART; ++k) sum[k] = Sixteen(_mm256_sub_epi16(__m256i(sum[k]), _mm256_cmpgt_epi16(__m256i(own[k]), other)));
        }
#pragma GCC unroll 8
        for (int k = 0; k < PART; ++k)
            if (from + k < V) _mm256_store_si256(reinterpret_cast<__m256i*>(rank + 16 * (from + k)), __m256i(sum[k]));
    }
}

// The largest of N entries, a multiple of 16, that are not in `set`; at least 0.
template <int N> [[gnu::always_inline]] inline std::int32_t largest(const std::int32_t* x, const std::uint64_t* set) {
    const __m256i zero = _mm256_setzero_si256(), to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i most[2] = {zero, zero};
#pragma GCC unroll 32
    for (int k = 0; k < N; k += 8) {
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

template <int WORDS> struct Words {
    std::uint64_t word[WORDS];
    static Words of(const std::uint64_t* set) {
        Words x;
        std::copy_n(set, WORDS, x.word);
        return x;
    }
    void to(std::uint64_t* set) const { std::copy_n(word, WORDS, set); }
    Words operator^(Words b) const { return each(b, [](std::uint64_t x, std::uint64_t y) { return x ^ y; }); }
    Words operator|(Words b) const { return each(b, [](std::uint64_t x, std::uint64_t y) { return x | y; }); }
    Words operator&(Words b) const { return each(b, [](std::uint64_t x, std::uint64_t y) { return x & y; }); }
    template <class F> Words each(Words b, F f) const {
        for (int w = 0; w < WORDS; ++w) b.word[w] = f(word[w], b.word[w]);
        return b;
    }
};

inline std::int16_t saturated(int x) { return std::int16_t(x > 32767 ? 32767 : x < -32768 ? -32768 : x); }

template <int V, class Hit> inline Hits<V> hits_of(Hit hit) {
    Hits<V> hits{};
    for (int k = 0; k < 16 * V; ++k) hits.word[k / 64] |= std::uint64_t(hit(k)) << (Hits<V>::place(k) % 64);
    return hits;
}

inline void put(std::int16_t* row, unsigned k, std::int16_t x) { row[k] = x; }

inline void round_all(const double* x, double scale, int n, std::int16_t* plus, std::int16_t* minus) {
    for (int k = 0; k < n; ++k) {
        plus[k] = std::int16_t(std::lrint(x[k] * scale));
        minus[k] = std::int16_t(-plus[k]);
    }
}

inline void round_lengths(const double* x, double scale, int n, std::int16_t* rounded) {
    for (int k = 0; k < n; ++k) rounded[k] = std::int16_t(std::lrint(std::min(x[k] * scale, 32767.0)));
}

template <int V> inline Hits<V> nearest(const std::int16_t* x, const std::int16_t* y, std::int16_t error) {
    std::int16_t sum[16 * V], low = 32767;
    for (int k = 0; k < 16 * V; ++k) {
        sum[k] = saturated(x[k] + y[k]);
        low = std::min(low, sum[k]);
    }
    const std::int16_t bound = saturated(low + error + 1);
    return hits_of<V>([&](int k) { return sum[k] < bound; });
}

template <int V, int WORDS>
inline Hits<V> search_cut(const std::int16_t* lengths, const std::uint64_t* side, const std::int16_t* own, const std::int16_t* other,
                          std::int16_t error, std::int32_t* list, int& count, int& limit) {
    std::int16_t best[16 * V], low = 32767;
    count = 0;
    std::fill_n(best, 16 * V, low);
    for (int r = 0; r < 16 * V; ++r) {
        if (!(side[r >> 6] >> (r & 63) & 1)) continue;
        list[count++] = r;
        for (int k = 0; k < 16 * V; ++k) best[k] = std::min(best[k], saturated(own[r] + lengths[r * 16 * V + k]));
    }
    for (int k = 0; k < 16 * V; ++k) {
        best[k] = side[k >> 6] >> (k & 63) & 1 ? std::int16_t(32767) : saturated(best[k] + other[k]);
        low = std::min(low, best[k]);
    }
    const std::int16_t bound = saturated(low + error + 1);
    limit = bound - 1;
    return hits_of<V>([&](int k) { return best[k] < bound; });
}

template <int V>
inline Hits<V> at_most(const std::int16_t* x, const std::int16_t* own, std::int16_t other, const std::uint64_t* set, int limit) {
    return hits_of<V>([&](int k) { return (set[k >> 6] >> (k & 63) & 1) && saturated(own[k] + x[k]) < std::int16_t(limit + 1 - other); });
}

template <int V> inline void ranks(const std::int16_t* key, int n, std::int16_t* rank) {
    for (int v = 0; v < 16 * V; ++v) rank[v] = std::int16_t(std::count_if(key, key + n, [&](std::int16_t k) { return k < key[v]; }));
}

template <int N> inline std::int32_t largest(const std::int32_t* x, const std::uint64_t* set) {
    std::int32_t most = 0;
    for (int k = 0; k < N; ++k) most = x[k] > most && !(set[k >> 6] >> (k & 63) & 1) ? x[k] : most;
    return most;
}

#endif

}  // namespace geoattn::GEOATTN_ISA

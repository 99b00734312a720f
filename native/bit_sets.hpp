// Sets of nodes and of tree edges as bits, and the size of the rows they go with: known to the compiler for short maps
// (V vectors of sixteen), known at run time for all others (V = 0).
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "simd_float.hpp"

namespace geoattn::GEOATTN_ISA {

// Rows of so many vectors of sixteen entries; sets of all nodes but the last one, which are as many as the edges of a tree,
// and sets of all nodes.
template <int V> class Extent {
  public:
    explicit Extent(int, int) {}
    static constexpr int WORDS = V <= 5 ? 1 : V <= 9 ? 2 : V <= 17 ? 4 : (V + 3) / 4;
    static constexpr int vectors() { return V; }
    static constexpr int columns() { return 16 * V; }
    static constexpr int stride() { return 16 * V; }
    static constexpr int words() { return WORDS; }
    static constexpr int side_words() { return (V + 3) / 4; }
    static constexpr int seen() { return V; }
    void see(int) {}
};
template <> class Extent<0> {
  public:
    Extent(int n, int stride)
        : vectors_((n + 15) / 16), stride_(stride), words_((vectors_ + 15) / 16 * 4), best(std::size_t(16) * vectors_),
          bits(std::size_t(2) * words_) {}
    static constexpr int WORDS = 0;
    int vectors() const { return vectors_; }
    int columns() const { return 16 * vectors_; }
    int stride() const { return stride_; }
    int words() const { return words_; }  // a multiple of four: one vector
    int side_words() const { return words_; }
    int seen() const { return seen_; }  // vectors that searches look at: all, or those with the first so many columns
    void see(int columns) {
        seen_ = (columns + 15) / 16;
        std::fill(bits.begin(), bits.end(), 0);
    }

  private:
    int vectors_, stride_, words_, seen_ = vectors_;

  public:  // what is found on the way; each solver has its own
    Row<std::int16_t> best;
    Row<std::uint64_t> bits;
};

inline bool has(const std::uint64_t* set, int k) { return set[k >> 6] >> (k & 63) & 1; }
inline void flip(std::uint64_t* set, int k) { set[k >> 6] ^= 1ull << (k & 63); }

// body(w) for all words of a set: four at a time where their number is not known to the compiler.
template <int V, class Body> [[gnu::always_inline]] inline void each_word(const Extent<V>& extent, Body body) {
    if constexpr (V > 0) {
        for (int w = 0; w < Extent<V>::WORDS; ++w) body(w);
    } else {
        for (int w = 0; w < extent.words(); w += 4)
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) body(w + k);
    }
}

template <int V> int size_of(const std::uint64_t* set, const Extent<V>& extent) {
    int sum = 0;
    each_word(extent, [&](int w) { sum += std::popcount(set[w]); });
    return sum;
}
template <int V> void add_all(std::uint64_t* __restrict set, const std::uint64_t* __restrict other, const Extent<V>& extent) {
    each_word(extent, [&](int w) { set[w] |= other[w]; });
}
template <int V> void flip_all(std::uint64_t* __restrict set, const std::uint64_t* __restrict other, const Extent<V>& extent) {
    each_word(extent, [&](int w) { set[w] ^= other[w]; });
}
template <int V> void copy_all(std::uint64_t* __restrict set, const std::uint64_t* __restrict other, const Extent<V>& extent) {
    each_word(extent, [&](int w) { set[w] = other[w]; });
}

// A set for a moment: on the stack where its size is known.
template <int WORDS> struct Words {
    alignas(32) std::uint64_t word[WORDS];
    explicit Words(std::uint64_t*) {}
    std::uint64_t* data() { return word; }
};
template <> struct Words<0> {
    std::uint64_t* word;
    explicit Words(std::uint64_t* memory) : word(memory) {}
    std::uint64_t* data() { return word; }
};

// The members of a set in one loop: a loop for each word would end where the processor does not expect it. Of an empty set,
// next() gives the number beyond the last word.
template <int WORDS> class Members {
  public:
    explicit Members(const std::uint64_t* set, int = 0) {
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
    explicit Members(const std::uint64_t* set, int = 0) : left_(*set) {}
    explicit operator bool() const { return left_ != 0; }
    int next() {
        const int member = std::countr_zero(left_);
        left_ &= left_ - 1;
        return member;
    }

  private:
    std::uint64_t left_;
};
template <> class Members<0> {
  public:
    Members(const std::uint64_t* set, int words) : set_(set), words_(words) { find(); }
    explicit operator bool() const { return left_ != 0; }
    int next() {
        const int member = 64 * at_ + std::countr_zero(left_);
        left_ &= left_ - 1;
        if (!left_) find();
        return member;
    }

  private:
    void find() {
        while (!left_ && ++at_ < words_) left_ = set_[at_];
    }
    const std::uint64_t* set_;
    int words_, at_ = -1;
    std::uint64_t left_ = 0;
};

// Entries of rows of vectors of sixteen, a bit each. Bits 3 and 4 of a place have changed places, as the processor delivers them.
template <int V> struct Hits {
    static constexpr int WORDS = (V + 3) / 4;
    std::uint64_t word[WORDS];
    explicit Hits(std::uint64_t* = nullptr, int = 0) {}
    static constexpr int words() { return WORDS; }
};
template <> struct Hits<0> {
    std::uint64_t* word;
    int count;
    Hits(std::uint64_t* memory, int words) : word(memory), count(words) {}
    int words() const { return count; }
};

inline int place_of_hit(int bit) { return (bit & ~24) | (bit & 8) << 1 | (bit & 16) >> 1; }

template <int V> int count_of(const Hits<V>& hits) {
    int sum = 0;
    for (int w = 0; w < hits.words(); ++w) sum += std::popcount(hits.word[w]);
    return sum;
}
template <int V> int first_of(const Hits<V>& hits) {  // of at least one
    int bit = 0;
    for (int w = hits.words() - 1; w >= 0; --w) bit = hits.word[w] ? w * 64 + std::countr_zero(hits.word[w]) : bit;
    return place_of_hit(bit);
}
template <int V, class Visit> void each_of(const Hits<V>& hits, Visit visit) {
    for (int w = 0; w < hits.words(); ++w)
        for (std::uint64_t left = hits.word[w]; left; left &= left - 1) visit(place_of_hit(w * 64 + std::countr_zero(left)));
}

}  // namespace geoattn::GEOATTN_ISA

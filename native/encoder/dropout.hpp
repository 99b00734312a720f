// Which entries dropout keeps: a function of a seed, the number of a chunk of rows and the place in it, so that the backward
// pass draws the same ones again and nothing is stored.
#pragma once
#include "lanes.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

// Four generators xoshiro256++ side by side: a draw gives 16 bits to each of 16 entries.
class Dropout {
  public:
    // Entries whose 16 bits are below `threshold` are dropped, the others are scaled.
    Dropout(std::uint64_t seed, std::uint64_t stream, int threshold) : threshold_(threshold) {
        scale_ = all(65536.0f / float(65536 - threshold));
        std::uint64_t from = mixed(seed) ^ mixed(~stream);
        for (auto& words : state_)
            for (int k = 0; k < 4; ++k) words[k] = mixed(from += 0x9e3779b97f4a7c15u);
    }

    bool drops() const { return threshold_ > 0; }

    static constexpr int DRAW = 16, PARTS = DRAW / LANES;

    // Factors of the next 16 entries: 0, or 1 / (1 - p). They do not depend on the instruction set.
    GEOATTN_INLINE void next(Lanes (&factor)[PARTS]) {
        const Words sum = state_[0] + state_[3], draw = ((sum << 23) | (sum >> 41)) + state_[0], kept = state_[1] << 17;
        state_[2] ^= state_[0], state_[3] ^= state_[1], state_[1] ^= state_[2], state_[0] ^= state_[3], state_[2] ^= kept;
        state_[3] = (state_[3] << 45) | (state_[3] >> 19);
        const Halves halves[2] = {Halves(draw) & 0xffff, Halves(draw) >> 16 & 0xffff};
        Ints numbers[PARTS];
        std::memcpy(numbers, halves, sizeof halves);
        for (int l = 0; l < PARTS; ++l) factor[l] = Lanes((numbers[l] >= threshold_) & Ints(scale_));
    }

    // The next `count` entries (a multiple of 16) times their factors.
    GEOATTN_INLINE void apply(float* entries, int count) {
        for (int k = 0; k < count; k += DRAW) {
            Lanes factor[PARTS];
            next(factor);
            for (int l = 0; l < PARTS; ++l) store(entries + k + l * LANES, load(entries + k + l * LANES) * factor[l]);
        }
    }

  private:
    using Words = std::uint64_t __attribute__((vector_size(32)));
    using Halves = std::int32_t __attribute__((vector_size(32)));

    static std::uint64_t mixed(std::uint64_t x) {  // splitmix64
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }

    Words state_[4];
    Lanes scale_;
    std::int32_t threshold_;
};

}  // namespace geoattn::encoder::GEOATTN_ISA

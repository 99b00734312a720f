// Eight floats at a time, by the vector extensions of GCC and Clang: AVX2 and FMA where the compiler targets them, halves or
// quarters of it elsewhere; sixteen with AVX-512. This part of the kernel contracts products and sums and adds in another order
// with sixteen, so that the instruction sets differ in rounding.
#pragma once
#include <cstdint>
#include <cstring>

namespace geoattn::encoder::GEOATTN_ISA {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
using Lanes = float __attribute__((vector_size(4 * LANES)));
using Ints = std::int32_t __attribute__((vector_size(4 * LANES)));
using Eight = float __attribute__((vector_size(32)));
using Four = float __attribute__((vector_size(16)));

#define GEOATTN_INLINE inline __attribute__((always_inline))

GEOATTN_INLINE Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
GEOATTN_INLINE void store(float* to, Lanes x) { std::memcpy(to, &x, sizeof x); }
GEOATTN_INLINE Lanes all(float x) { return x - Lanes{}; }

// One number of all lanes, by halves: the first lane with the fifth and so on.
template <class Join> GEOATTN_INLINE float joined(Lanes x, Join join) {
    Eight eights[LANES / 8];
    std::memcpy(eights, &x, sizeof x);
    const Eight eight = LANES == 8 ? eights[0] : join(eights[0], eights[LANES / 8 - 1]);
    Four fours[2];
    std::memcpy(fours, &eight, sizeof eight);
    const Four four = join(fours[0], fours[1]);
    return join(join(four[0], four[2]), join(four[1], four[3]));
}
GEOATTN_INLINE float total(Lanes x) {
    return joined(x, [](auto a, auto b) { return a + b; });
}
GEOATTN_INLINE float largest(Lanes x) {
    return joined(x, [](auto a, auto b) { return a > b ? a : b; });
}
GEOATTN_INLINE Lanes absolute(Lanes x) { return Lanes(Ints(x) & 0x7fffffff); }

// exp(x) for x <= 0, to two units in the last place; 1.6e-38 below -87.
GEOATTN_INLINE Lanes exp_of_negative(Lanes x) {
    x = x < -87.0f ? all(-87.0f) : x;
    const Lanes shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits are round(x / log 2)
    const Lanes n = shifted - 12582912.0f;
    const Lanes r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * Lanes((Ints(shifted) << 23) + 0x3f800000);
}

// The normal distribution at x: its density, and the share below x to 1e-7 (Abramowitz and Stegun, 7.1.26).
struct Normal {
    Lanes below, density;
};
GEOATTN_INLINE Normal normal(Lanes x) {
    const Lanes e = exp_of_negative(x * x * -0.5f);
    const Lanes t = 1.0f / (absolute(x) * (0.3275911f * 0.70710678f) + 1.0f);
    Lanes p = t * (0.5f * 1.061405429f) - 0.5f * 1.453152027f;
    p = p * t + 0.5f * 1.421413741f;
    p = p * t - 0.5f * 0.284496736f;
    p = p * t + 0.5f * 0.254829592f;
    const Lanes tail = p * t * e;
    return {x > 0.0f ? 1.0f - tail : tail, e * 0.39894228f};
}

}  // namespace geoattn::encoder::GEOATTN_ISA

// What the fused blocks of an encoder work on: float32 arrays in C order, and sizes that are multiples of 16 (of 32 for v4).
#pragma once
#include <cstdint>

namespace geoattn::encoder {

constexpr int CHUNK = 96;  // rows that are worked on at once: a multiple of the rows of a tile, and all of it in the L2 cache

// out = drop(second drop(gelu(first norm(x)))). The backward pass reads `moments` and `hidden` that the forward pass wrote.
struct FeedForward {
    std::int64_t rows;
    int width, middle;
    float epsilon;
    std::uint64_t seed;
    int inner_threshold, outer_threshold;  // of 65536: the probability of being dropped
    const float *x, *norm_weight, *norm_bias, *first, *first_bias, *second, *second_bias;
    float *moments, *hidden;  // (rows, 2) and (rows, middle): mean and inverse deviation; before the GELU
    float* out;
    const float* by_out;
    float *to_x, *to_norm_weight, *to_norm_bias, *to_first, *to_first_bias, *to_second, *to_second_bias;
};

// parts[p] (samples, heads, tokens, dim) = weight norm(x): queries, keys and values of x (samples, tokens, width).
struct Projection {
    std::int64_t samples;
    int tokens, width, heads, dim, parts;
    float epsilon;
    const float *x, *norm_weight, *norm_bias, *weight;
    float* moments;
    float* out[3];
    const float* by_out[3];
    float *to_x, *to_norm_weight, *to_norm_bias, *to_weight;
};

// out = drop(weights) value with weights = softmax(scale query key^T); all but the weights (maps, tokens, tokens) are
// (maps, tokens, dim). The backward pass reads the weights that the forward pass wrote.
struct Attention {
    std::int64_t maps;
    int tokens, dim;
    float scale;
    std::uint64_t seed;
    int threshold;
    const float *query, *key, *value;
    float *weights, *out;
    const float* by_out;
    float *to_query, *to_key, *to_value;
};

// squares = sum of (weights - 1 / tokens)^2 over each map, with weights = softmax(scale query key^T); halves of its gradient by the query
// and by scale * key, where they are asked for (nullptr: not).
struct MapVariance {
    std::int64_t maps;
    int tokens, dim;
    float scale;
    const float *query, *key;
    double* squares;
    float *to_query, *to_key;
};

#define GEOATTN_DECLARE(isa)                                                                                                       \
    namespace isa {                                                                                                                \
    void forward(const FeedForward& job);                                                                                          \
    void backward(const FeedForward& job);                                                                                         \
    void forward(const Projection& job);                                                                                           \
    void backward(const Projection& job);                                                                                          \
    void forward(const Attention& job);                                                                                            \
    void backward(const Attention& job);                                                                                           \
    void variances(const MapVariance& job);                                                                                        \
    void factors(std::uint64_t seed, int threshold, std::int64_t first, std::int64_t step, std::int64_t rows, int each, int width, \
                 float* to);                                                                                                       \
    }
GEOATTN_DECLARE(baseline)
GEOATTN_DECLARE(v3)
GEOATTN_DECLARE(v4)
#undef GEOATTN_DECLARE

}  // namespace geoattn::encoder

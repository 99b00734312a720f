// What crosses the border between the Python binding and the kernel of variances: plain pointers, no Python.
//
// Variance of a map A = softmax(scale q k^T) of n queries and m keys: the mean over its n m entries of (A_ij - 1/m)^2.
// With D = A - 1/m and s_i = sum_j D_ij^2, the slope of the variance in the logits is
//     2 / (n m) A_ij (D_ij - s_i),
// and its products with the keys and with the queries are the gradient, which the backward pass takes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace geoattn {

// One block of maps (b, h, rows, d) with the last axis dense; strides count entries.
struct Operand {
    const float* data = nullptr;
    std::int64_t batch = 0, head = 0, row = 0;
};

struct Maps {
    std::vector<Operand> queries, keys;  // one of each per layer
    std::int64_t batch = 0, heads = 0;
    int n = 0, m = 0, d = 0;
    int threads = 1;
};

struct Gradients {
    std::vector<float*> slope;        // per layer (b, h, n, m)
    const float* upstream = nullptr;  // (layers, b, h)
    std::vector<float*> to_query;     // per layer (b, h, n, d)
    std::vector<float*> to_key;       // per layer (b, h, m, d)
};

#define GEOATTN_DECLARE(isa)                                                                                   \
    namespace isa {                                                                                            \
    void row_variances(const Maps& maps, double scale, float* variance /* (layers, b, h) */,                   \
                       float* slope /* (layers, b, h, n, m) or null; times the scale */);                      \
    void row_variance_gradients(const Maps& maps, const Gradients& gradients);                                 \
    }
GEOATTN_DECLARE(baseline)
GEOATTN_DECLARE(v3)
#undef GEOATTN_DECLARE

}  // namespace geoattn

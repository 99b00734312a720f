// The fused blocks of an encoder for one instruction set, which GEOATTN_ISA names.
#include "attention.hpp"
#include "feed_forward.hpp"
#include "projection.hpp"
#include "variance.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

void forward(const FeedForward& job) { forward_chunks(job); }
void backward(const FeedForward& job) { backward_chunks(job); }
void forward(const Projection& job) { forward_chunks(job); }
void backward(const Projection& job) { backward_chunks(job); }

void forward(const Attention& job) { forward_maps(job); }
void backward(const Attention& job) { backward_maps(job); }

void variances(const MapVariance& job) { variance_maps(job); }

// The factors that a dropout multiplies with, for tests: each `each` rows have a stream of their own, first, first + step, ...
void factors(std::uint64_t seed, int threshold, std::int64_t first, std::int64_t step, std::int64_t rows, int each, int width, float* to) {
    std::fill_n(to, rows * width, 1.0f);
    for (std::int64_t from = 0; from < rows; from += each) {
        Dropout dropout(seed, std::uint64_t(first + from / each * step), threshold);
        for (std::int64_t i = from; i < std::min<std::int64_t>(from + each, rows); ++i) dropout.apply(to + i * width, width);
    }
}

}  // namespace geoattn::encoder::GEOATTN_ISA

// LayerNorm of a chunk of rows, forward and backward.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lanes.hpp"

namespace geoattn::encoder::GEOATTN_ISA {

struct Norm {
    const float *weight, *bias;
    int width;
    float epsilon;

    // Mean and inverse deviation of each row, into `moments`.
    void measure(const float* x, int count, float* moments) const {
        for (int i = 0; i < count; ++i, x += width) {
            Lanes sum = all(0), squares = all(0);
            for (int k = 0; k < width; k += LANES) sum += load(x + k);
            const float mean = total(sum) / float(width);
            for (int k = 0; k < width; k += LANES) {
                const Lanes apart = load(x + k) - mean;
                squares += apart * apart;
            }
            moments[2 * i] = mean;
            moments[2 * i + 1] = 1.0f / std::sqrt(total(squares) / float(width) + epsilon);
        }
    }

    // The normalised rows, filled up with zeros to `padded` rows.
    void apply(const float* x, const float* moments, int count, int padded, float* to, int stride) const {
        for (int i = 0; i < count; ++i, x += width, to += stride)
            for (int k = 0; k < width; k += LANES)
                store(to + k, (load(x + k) - moments[2 * i]) * moments[2 * i + 1] * load(weight + k) + load(bias + k));
        for (int i = count; i < padded; ++i, to += stride) std::fill(to, to + width, 0.0f);
    }

    // The gradient by x of the gradient `by_output` by the normalised rows; adds to those by weight and bias.
    void pull_back(const float* by_output, int stride, const float* x, const float* moments, int count, float* to_x, float* to_weight,
                   float* to_bias) const {
        for (int i = 0; i < count; ++i, x += width, by_output += stride, to_x += width) {
            const float mean = moments[2 * i], inverse = moments[2 * i + 1];
            Lanes sum = all(0), along = all(0);
            for (int k = 0; k < width; k += LANES) {
                const Lanes upstream = load(by_output + k), unit = (load(x + k) - mean) * inverse, slope = upstream * load(weight + k);
                store(to_weight + k, load(to_weight + k) + upstream * unit);
                store(to_bias + k, load(to_bias + k) + upstream);
                sum += slope, along += slope * unit;
            }
            const float shift = total(sum) / float(width), part = total(along) / float(width);
            for (int k = 0; k < width; k += LANES) {
                const Lanes unit = (load(x + k) - mean) * inverse, slope = load(by_output + k) * load(weight + k);
                store(to_x + k, (slope - shift - unit * part) * inverse);
            }
        }
    }
};

}  // namespace geoattn::encoder::GEOATTN_ISA

// The fused blocks for Python. Arrays come as addresses, because a tensor is asked for its address in a tenth of the time that an
// exchange of arrays takes; geoattn.models.fused_blocks checks them.
#include "binding.hpp"

#include <nanobind/stl/array.h>

#include <array>

#include "jobs.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace geoattn::encoder {

namespace {

float* at(std::uintptr_t address) { return reinterpret_cast<float*>(address); }

// The instruction sets, each with all that the ones before it have.
enum class Level { baseline, v3, v4 };

Level level_of_processor() {
#if defined(GEOATTN_HAVE_V4)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return Level::v4;
#endif
#if defined(GEOATTN_HAVE_V3)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return Level::v3;
#endif
    return Level::baseline;
}

const Level processor = level_of_processor();

bool in_wide_strips(const FeedForward& job) { return job.width % 32 == 0 && job.middle % 32 == 0; }
bool in_wide_strips(const Projection& job) { return job.width % 32 == 0 && job.heads * job.dim % 32 == 0; }
bool in_wide_strips(const Attention& job) { return job.dim % 32 == 0; }

bool in_wide_strips(const MapVariance& job) { return job.dim % 32 == 0; }

// Calls the function of the best instruction set that has the sizes of the job.
#if defined(GEOATTN_HAVE_V4)
#define GEOATTN_IF_V4(call) processor >= Level::v4&& in_wide_strips(job) ? v4::call:
#else
#define GEOATTN_IF_V4(call)
#endif
#if defined(GEOATTN_HAVE_V3)
#define GEOATTN_IF_V3(call) processor >= Level::v3 ? v3::call:
#else
#define GEOATTN_IF_V3(call)
#endif
#define GEOATTN_CALL(call) (GEOATTN_IF_V4(call) GEOATTN_IF_V3(call) baseline::call)

template <class Job> void run(const Job& job, bool back) {
    nb::gil_scoped_release release;
    back ? GEOATTN_CALL(backward(job)) : GEOATTN_CALL(forward(job));
}

}  // namespace

void bind(nb::module_& m) {
    m.def(
        "feed_forward",
        [](std::int64_t rows, int width, int middle, float epsilon, std::uint64_t seed, int inner, int outer,
           std::array<std::uintptr_t, 7> inputs, std::array<std::uintptr_t, 2> kept, std::uintptr_t out, std::uintptr_t by_out,
           std::array<std::uintptr_t, 7> gradients) {
            FeedForward job{rows, width, middle, epsilon, seed, inner, outer};
            job.x = at(inputs[0]), job.norm_weight = at(inputs[1]), job.norm_bias = at(inputs[2]);
            job.first = at(inputs[3]), job.first_bias = at(inputs[4]), job.second = at(inputs[5]), job.second_bias = at(inputs[6]);
            job.moments = at(kept[0]), job.hidden = at(kept[1]), job.out = at(out), job.by_out = at(by_out);
            job.to_x = at(gradients[0]), job.to_norm_weight = at(gradients[1]), job.to_norm_bias = at(gradients[2]);
            job.to_first = at(gradients[3]), job.to_first_bias = at(gradients[4]);
            job.to_second = at(gradients[5]), job.to_second_bias = at(gradients[6]);
            run(job, by_out != 0);
        },
        "rows"_a, "width"_a, "middle"_a, "epsilon"_a, "seed"_a, "inner"_a, "outer"_a, "inputs"_a, "kept"_a, "out"_a, "by_out"_a,
        "gradients"_a, "The feed-forward block; with by_out its gradients, in the order of the inputs.");
    m.def(
        "projection",
        [](std::int64_t samples, int tokens, int width, int heads, int dim, float epsilon, std::array<std::uintptr_t, 4> inputs,
           std::uintptr_t moments, std::array<std::uintptr_t, 3> out, std::array<std::uintptr_t, 3> by_out,
           std::array<std::uintptr_t, 4> gradients) {
            Projection job{samples, tokens, width, heads, dim, 3, epsilon};
            job.x = at(inputs[0]), job.norm_weight = at(inputs[1]), job.norm_bias = at(inputs[2]), job.weight = at(inputs[3]);
            job.moments = at(moments);
            for (int k = 0; k < 3; ++k) job.out[k] = at(out[k]), job.by_out[k] = at(by_out[k]);
            job.to_x = at(gradients[0]), job.to_norm_weight = at(gradients[1]), job.to_norm_bias = at(gradients[2]);
            job.to_weight = at(gradients[3]);
            run(job, by_out[0] != 0);
        },
        "samples"_a, "tokens"_a, "width"_a, "heads"_a, "dim"_a, "epsilon"_a, "inputs"_a, "moments"_a, "out"_a, "by_out"_a, "gradients"_a,
        "LayerNorm and the projection to queries, keys and values; with by_out its gradients.");
    m.def(
        "attention",
        [](std::int64_t maps, int tokens, int dim, float scale, std::uint64_t seed, int dropped, std::array<std::uintptr_t, 3> inputs,
           std::uintptr_t weights, std::uintptr_t out, std::uintptr_t by_out, std::array<std::uintptr_t, 3> gradients) {
            Attention job{maps, tokens, dim, scale, seed, dropped};
            job.query = at(inputs[0]), job.key = at(inputs[1]), job.value = at(inputs[2]);
            job.weights = at(weights), job.out = at(out), job.by_out = at(by_out);
            job.to_query = at(gradients[0]), job.to_key = at(gradients[1]), job.to_value = at(gradients[2]);
            run(job, by_out != 0);
        },
        "maps"_a, "tokens"_a, "dim"_a, "scale"_a, "seed"_a, "dropped"_a, "inputs"_a, "weights"_a, "out"_a, "by_out"_a, "gradients"_a,
        "Attention with dropout on its weights; with by_out its gradients.");
    m.def(
        "map_variance",
        [](std::int64_t maps, int tokens, int dim, float scale, std::uintptr_t query, std::uintptr_t key, std::uintptr_t squares,
           std::uintptr_t to_query, std::uintptr_t to_key) {
            const MapVariance job{maps,         tokens,    dim, scale, at(query), at(key), reinterpret_cast<double*>(squares),
                                  at(to_query), at(to_key)};
            nb::gil_scoped_release release;
            GEOATTN_CALL(variances(job));
        },
        "maps"_a, "tokens"_a, "dim"_a, "scale"_a, "query"_a, "key"_a, "squares"_a, "to_query"_a, "to_key"_a,
        "Sums of the squares of weights less their mean, map by map, and halves of their gradients.");
    m.def(
        "dropout_factors",
        [](std::uint64_t seed, int dropped, std::int64_t first, std::int64_t step, std::int64_t rows, int each, int width,
           std::uintptr_t to) { baseline::factors(seed, dropped, first, step, rows, each, width, at(to)); },
        "seed"_a, "dropped"_a, "first"_a, "step"_a, "rows"_a, "each"_a, "width"_a, "to"_a,
        "The factors of dropout: each so many rows have a stream of their own.");
}

}  // namespace geoattn::encoder

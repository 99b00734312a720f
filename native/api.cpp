// The Python binding: checks nothing (src/geoattn does), releases the GIL, honours Ctrl-C, reports progress.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "edge_list.hpp"
#include "encoder/binding.hpp"
#include "job.hpp"
#include "sparse/binding.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using geoattn::Backward;
using geoattn::Job;

namespace {

template <class T, int ND> using Array = nb::ndarray<T, nb::ndim<ND>, nb::c_contig, nb::device::cpu>;
using Column = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Map = nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using OptionalTrees = std::optional<Array<std::int32_t, 2>>;
using OptionalPotentials = std::optional<Array<double, 2>>;

bool has_v3() {
#if defined(GEOATTN_HAVE_V3)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#else
    return false;
#endif
}
const bool V3 = has_v3();

#if defined(GEOATTN_HAVE_V3)
#define GEOATTN_CALL(call) (V3 ? geoattn::v3::call : geoattn::baseline::call)
#else
#define GEOATTN_CALL(call) geoattn::baseline::call
#endif

// Run `work` without the GIL; about ten times a second look for signals and report progress.
template <class Work> void supervise(Job& job, const nb::object& progress, Work work) {
    bool interrupted = false;
    {
        nb::gil_scoped_release release;
        job.stop.look = [&] {
            if (interrupted) return;
            nb::gil_scoped_acquire acquire;
            interrupted = PyErr_CheckSignals() != 0;
            if (!interrupted && !progress.is_none()) {
                PyObject* answer = PyObject_CallFunction(progress.ptr(), "L", static_cast<long long>(job.done.load()));
                interrupted = !answer;
                Py_XDECREF(answer);
            }
            if (interrupted) job.stop.set();
        };
        work();
    }
    if (interrupted) throw nb::python_error();
}

void fill(Job& job, const Array<const double, 3>& lengths, const Array<const double, 3>& measures,
          const Array<const std::int32_t, 2>& pairs, const Array<const std::int64_t, 1>& offsets, bool directed, bool per_length,
          double floor, double idle, int threads) {
    job.graphs = std::int64_t(lengths.shape(0));
    job.n = int(lengths.shape(1));
    job.lengths = lengths.data();
    job.measures = measures.data();
    job.pairs = pairs.data();
    job.offsets = offsets.data();
    job.directed = directed;
    job.per_length = per_length;
    job.floor = floor;
    job.idle = idle;
    job.threads = threads;
}

// A NumPy array that keeps the vector; `columns`: of so many columns, or 1-D.
template <class T> nb::object as_array(std::vector<T>&& values, std::size_t columns = 0) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    const std::size_t shape[2] = {kept->size() / std::max<std::size_t>(columns, 1), columns};
    return nb::ndarray<nb::numpy, T>(kept->data(), columns ? 2 : 1, shape, owner).cast();
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Exact transport on the shortest-path metric of weighted graphs, and the fused training step of L-ViT.";
    geoattn::encoder::bind(m);
    geoattn::sparse::bind(m);
    m.def("instruction_set", [] { return V3 ? "x86-64-v3" : "baseline"; });

    m.def(
        "solve",
        [](Array<const double, 3> lengths, Array<const double, 3> measures, Array<const std::int32_t, 2> pairs,
           Array<const std::int64_t, 1> offsets, Array<double, 1> w1, Array<double, 1> denominator, Array<double, 1> distance,
           Array<double, 1> gap, Array<std::uint8_t, 1> status, OptionalTrees trees, OptionalPotentials potentials, bool directed,
           bool per_length, double floor, double idle, double tolerance, int threads, nb::object progress) {
            Job job;
            fill(job, lengths, measures, pairs, offsets, directed, per_length, floor, idle, threads);
            job.tolerance = tolerance;
            job.w1 = w1.data();
            job.denominator = denominator.data();
            job.distance = distance.data();
            job.gap = gap.data();
            job.status = status.data();
            job.trees = trees ? trees->data() : nullptr;
            job.potentials = potentials ? potentials->data() : nullptr;
            supervise(job, progress, [&] { GEOATTN_CALL(solve)(job); });
        },
        "lengths"_a.noconvert(), "measures"_a.noconvert(), "pairs"_a.noconvert(), "offsets"_a.noconvert(), "w1"_a.noconvert(),
        "denominator"_a.noconvert(), "distance"_a.noconvert(), "gap"_a.noconvert(), "status"_a.noconvert(),
        "trees"_a.none().noconvert() = nb::none(), "potentials"_a.none().noconvert() = nb::none(), nb::kw_only(), "directed"_a,
        "per_length"_a, "floor"_a, "idle"_a, "tolerance"_a, "threads"_a, "progress"_a = nb::none(),
        "Fill w1, denominator, distance, gap and status (one entry per pair) in place.");

    m.def(
        "pull_back",
        [](Array<const double, 3> lengths, Array<const double, 3> measures, Array<const std::int32_t, 2> pairs,
           Array<const std::int64_t, 1> offsets, Array<double, 1> w1, Array<double, 1> denominator, Array<double, 1> distance,
           Array<std::uint8_t, 1> status, Array<std::int32_t, 2> trees, Array<const double, 1> upstream, Array<double, 3> to_lengths,
           Array<double, 3> to_measures, bool directed, bool per_length, double idle, int threads) {
            Job job;
            fill(job, lengths, measures, pairs, offsets, directed, per_length, 0.0, idle, threads);
            job.w1 = w1.data();
            job.denominator = denominator.data();
            job.distance = distance.data();
            job.status = status.data();
            job.trees = trees.data();
            const Backward backward{&job, upstream.data(), to_lengths.data(), to_measures.data()};
            supervise(job, nb::none(), [&] { GEOATTN_CALL(pull_back)(backward); });
        },
        "lengths"_a.noconvert(), "measures"_a.noconvert(), "pairs"_a.noconvert(), "offsets"_a.noconvert(), "w1"_a.noconvert(),
        "denominator"_a.noconvert(), "distance"_a.noconvert(), "status"_a.noconvert(), "trees"_a.noconvert(), "upstream"_a.noconvert(),
        "to_lengths"_a.noconvert(), "to_measures"_a.noconvert(), nb::kw_only(), "directed"_a, "per_length"_a, "idle"_a, "threads"_a,
        "Add the gradients of sum(upstream * kappa) to to_lengths and to_measures.");

    m.def(
        "shortest_paths",
        [](Array<double, 2> distances, bool directed, int threads) {
            Job job;
            supervise(job, nb::none(),
                      [&] { GEOATTN_CALL(shortest_paths)(distances.data(), int(distances.shape(0)), directed, threads, job.stop); });
        },
        "distances"_a.noconvert(), nb::kw_only(), "directed"_a, "threads"_a,
        "Turn lengths (infinite: no edge) into shortest-path distances, in place.");

    m.def(
        "list_edges",
        [](Array<const double, 3> lengths, bool directed) {
            geoattn::EdgeList list =
                geoattn::list_edges(lengths.data(), std::int64_t(lengths.shape(0)), std::int64_t(lengths.shape(1)), directed);
            return nb::make_tuple(as_array(std::move(list.places)), as_array(std::move(list.pairs), 2), as_array(std::move(list.offsets)));
        },
        "lengths"_a.noconvert(), "directed"_a, "Flat places, pairs and offsets by graph of all edges of finite length, each once.");

    m.def(
        "lay_out",
        [](const std::vector<Column>& columns, Array<const std::int64_t, 1> places, const std::vector<Map>& maps, bool directed,
           int no_edge) {
            const std::size_t edges = places.shape(0);
            std::vector<std::int64_t> mirror;
            if (!directed && !maps.empty()) mirror = geoattn::mirrored(places.data(), edges, std::int64_t(maps[0].shape(1)));
            for (std::size_t k = 0; k < columns.size(); ++k) {
                const Column& column = columns[k];
                const Map& map = maps.at(k);
                const auto put = [&]<class T>(T nothing) {
                    if (map.dtype() != nb::dtype<T>() || column.shape(0) != edges) throw nb::type_error("a column does not fit its map");
                    geoattn::lay_out(static_cast<const T*>(column.data()), places.data(), edges, mirror, nothing,
                                     static_cast<T*>(map.data()), map.size());
                };
                if (column.dtype() == nb::dtype<double>()) put(std::numeric_limits<double>::quiet_NaN());
                else put(std::uint8_t(no_edge));
            }
        },
        "columns"_a, "places"_a.noconvert(), "maps"_a, "directed"_a, "no_edge"_a,
        "Fill maps (g, n, n): the columns in their ascending places, of undirected edges in both triangles; else NaN, or no_edge in\n"
        "maps of bytes.");
}

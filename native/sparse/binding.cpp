// The Python binding of the sparse solver: checks nothing (src/geoattn does), releases the GIL, honours Ctrl-C, reports progress.
#include "binding.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "job.hpp"
#include "workers.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace geoattn::sparse {

namespace {

template <class T> using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Starts = Array<const std::int64_t>;
using Columns = Array<const std::int32_t>;
using Values = Array<const double>;
using Pairs = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Rows rows(const Starts& start, const Columns& column, const Values& value) { return {start.data(), column.data(), value.data()}; }

void run(Job& job, const nb::object& report) {
#if defined(GEOATTN_HAVE_V3)
    static const bool modern = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const auto solve = modern ? v3::solve : baseline::solve;
#else
    const auto solve = baseline::solve;
#endif
    Progress progress;
    bool failed = false;
    {
        nb::gil_scoped_release release;
        progress.look = [&] {
            nb::gil_scoped_acquire acquire;
            failed = PyErr_CheckSignals() != 0;
            if (!failed && !report.is_none()) {
                PyObject* answer = PyObject_CallFunction(report.ptr(), "L", static_cast<long long>(progress.done.load()));
                failed = answer == nullptr;
                Py_XDECREF(answer);
            }
            return failed;
        };
        solve(job, progress);
    }
    if (failed) throw nb::python_error();
}

}  // namespace

void bind(nb::module_& m) {
    m.def(
        "solve_sparse",
        [](Starts out_start, Columns out_column, Values out_length, Starts in_start, Columns in_column, Values in_length,
           Starts measure_start, Columns measure_column, Values mass, Pairs pairs, Values lengths, Array<double> w1,
           Array<double> denominator, Array<double> distance, Array<double> gap, Array<std::uint8_t> status, std::optional<Values> upstream,
           std::optional<Array<double>> to_lengths, std::optional<Array<double>> to_measures, std::optional<Starts> second_start,
           std::optional<Columns> second_column, std::optional<Values> second_mass, bool directed, bool near, bool per_length, double hop,
           double floor, double idle, int threads, nb::object progress) {
            Job job;
            job.n = std::int32_t(out_start.shape(0)) - 1;
            job.out = rows(out_start, out_column, out_length);
            job.in = rows(in_start, in_column, in_length);
            job.measures = rows(measure_start, measure_column, mass);
            job.seconds = second_start ? rows(*second_start, *second_column, *second_mass) : job.measures;
            job.count = std::int64_t(pairs.shape(0));
            job.pairs = pairs.data();
            job.lengths = lengths.data();
            job.w1 = w1.data(), job.denominator = denominator.data(), job.distance = distance.data();
            job.gap = gap.data(), job.status = status.data();
            if (upstream) job.upstream = upstream->data(), job.to_lengths = to_lengths->data(), job.to_measures = to_measures->data();
            job.directed = directed, job.near = near, job.per_length = per_length;
            job.hop = hop, job.floor = floor, job.idle = idle, job.threads = threads;
            run(job, progress);
        },
        "out_start"_a.noconvert(), "out_column"_a.noconvert(), "out_length"_a.noconvert(), "in_start"_a.noconvert(),
        "in_column"_a.noconvert(), "in_length"_a.noconvert(), "measure_start"_a.noconvert(), "measure_column"_a.noconvert(),
        "mass"_a.noconvert(), "pairs"_a.noconvert(), "lengths"_a.noconvert(), "w1"_a.noconvert(), "denominator"_a.noconvert(),
        "distance"_a.noconvert(), "gap"_a.noconvert(), "status"_a.noconvert(), "upstream"_a.none().noconvert() = nb::none(),
        "to_lengths"_a.none().noconvert() = nb::none(), "to_measures"_a.none().noconvert() = nb::none(),
        "second_start"_a.none().noconvert() = nb::none(), "second_column"_a.none().noconvert() = nb::none(),
        "second_mass"_a.none().noconvert() = nb::none(), nb::kw_only(), "directed"_a, "near"_a, "per_length"_a, "hop"_a, "floor"_a,
        "idle"_a, "threads"_a, "progress"_a = nb::none(),
        "Fill w1, denominator, distance, gap and status of the pairs of a sparse graph in place; with upstream = dL / dkappa also\n"
        "the gradients by length and by mass, entry by entry.");
}

}  // namespace geoattn::sparse

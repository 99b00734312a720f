// What the optimal flow of a pair says about lengths and masses: kappa = 1 + idle - W1 / D falls by the flow on each edge and by the
// potential of each mass.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "round.hpp"
#include "search.hpp"
#include "transport.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

using Term = std::pair<std::int64_t, double>;  // place in to_lengths or to_measures, and what to add
struct Terms {
    std::vector<Term> lengths, measures;  // a place below 0 is -1 - place of an entry of `in`
};

class EdgeGradient {
  public:
    explicit EdgeGradient(const Job& job) : job_(job), potential_(job.n, 0), moves_(job.n, false) {}

    template <class Cost, class Distance>
    void add(std::int64_t k, const Ask& ask, std::int32_t q, const std::vector<std::int32_t>& rows,
             const std::vector<std::int32_t>& columns, const Transport<Cost>& problem, Distance distance, Terms& terms) {
        const double slope = -job_.upstream[k] / job_.denominator[k];
        const double below = job_.upstream[k] * job_.w1[k] / (job_.denominator[k] * job_.denominator[k]);
        const bool any = !rows.empty() && !columns.empty();
        if (any)
            problem.each_flow([&](const Flow& f) {
                if (f.amount > 0) rays_.push_back({rows[f.row], columns[f.column], slope * f.amount});
            });
        if (!job_.per_length) rays_.push_back({ask.owner, q, below});
        else add_length(ask.back ? q : ask.owner, ask.back ? ask.owner : q, below, terms);
        if (!any) return add_masses(ask.owner, q, slope, [](std::int32_t) { return 0.0; }, terms);
        for (std::size_t i = 0; i < rows.size(); ++i) moves_[rows[i]] = true, potential_[rows[i]] = problem.potential_of_row(int(i));
        for (std::size_t j = 0; j < columns.size(); ++j)
            moves_[columns[j]] = true, potential_[columns[j]] = -problem.potential_of_column(int(j));
        const auto potential = [&](std::int32_t v) {
            if (moves_[v]) return potential_[v];
            double lowest = FAR;  // what stays: the largest potential that its way to each column allows
            for (const std::int32_t b : columns) lowest = std::min(lowest, distance(v, b) + potential_[b]);
            return lowest < FAR ? lowest : 0.0;
        };
        add_masses(ask.owner, q, slope, potential, terms);
        for (const std::int32_t v : rows) moves_[v] = false;
        for (const std::int32_t v : columns) moves_[v] = false;
    }

    // All flows of an owner, one search for each start.
    void flush(Search& search, bool back, Terms& terms) {
        std::stable_sort(rays_.begin(), rays_.end(), [](const Ray& a, const Ray& b) { return a.from < b.from; });
        std::vector<std::int32_t> ends;
        for (std::size_t k = 0; k < rays_.size();) {
            std::size_t last = k;
            ends.clear();
            for (; last < rays_.size() && rays_[last].from == rays_[k].from; ++last) ends.push_back(rays_[last].to);
            search.trace(back ? job_.in : job_.out, rays_[k].from, ends, [&](std::size_t r, const std::vector<std::int64_t>& way) {
                for (const std::int64_t e : way) terms.lengths.push_back({job_.directed && back ? -1 - e : e, rays_[k + r].weight});
            });
            k = last;
        }
        rays_.clear();
    }

  private:
    const Job& job_;
    std::vector<double> potential_;
    std::vector<bool> moves_;  // whether a node is a row or a column
    struct Ray {
        std::int32_t from, to;
        double weight;
    };
    std::vector<Ray> rays_;  // flows along shortest ways

    template <class Potential> void add_masses(std::int32_t owner, std::int32_t q, double slope, Potential potential, Terms& terms) const {
        const auto add = [&](std::int32_t node, double factor) {
            for (std::int64_t e = job_.measures.start[node]; e < job_.measures.start[node + 1]; ++e)
                terms.measures.push_back({e, factor * potential(job_.measures.column[e])});
        };
        add(owner, slope), add(q, -slope);
    }

    void add_length(std::int32_t v, std::int32_t w, double value, Terms& terms) const {
        const auto* start = job_.out.column;
        const auto* found = std::lower_bound(start + job_.out.start[v], start + job_.out.start[v + 1], w);
        terms.lengths.push_back({found - start, value});
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

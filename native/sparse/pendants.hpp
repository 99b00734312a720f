// Nodes with one neighbour. All mass that goes to or comes from such a node passes its neighbour, so what the neighbour's measure
// has on all of its pendants is one number of mass and one of cost: an edge of a star takes constant time, however many leaves.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

class Pendants {
  public:
    // The measures without what they have on pendants of their node; empty if there is no pendant.
    explicit Pendants(const Job& job) : job_(job), rest_(job.measures), seconds_(job.seconds) {
        if (job.hop == 0 || job.upstream) {
            sum_up(job.measures, scale_);
            if (job.seconds.start != job.measures.start) sum_up(job.seconds, second_scale_);
        }
        if (job.directed || !job.near || job.upstream || job.seconds.start != job.measures.start) return;
        parent_.assign(job.n, -1), mass_.assign(job.n, 0), cost_.assign(job.n, 0);
        bool any = false;
        for (std::int32_t v = 0; v < job.n; ++v) {
            if (job.out.count(v) != 1) continue;
            const std::int32_t q = job.out.column[job.out.start[v]];
            if (job.out.count(q) < 2) continue;  // the two are a graph of their own
            parent_[v] = q, any = true;
        }
        if (!any) {
            parent_.clear();
            return;
        }
        start_.reserve(job.n + 1);
        for (std::int32_t q = 0; q < job.n; ++q) {
            start_.push_back(std::int64_t(column_.size()));
            long double mass = 0;
            Sum cost;
            for (std::int64_t k = job.measures.start[q]; k < job.measures.start[q + 1]; ++k) {
                const std::int32_t b = job.measures.column[k];
                if (parent_[b] == q) {
                    mass += job.measures.value[k];
                    cost.add(job.measures.value[k] * job.out.value[job.out.start[b]]);
                } else {
                    column_.push_back(b), value_.push_back(job.measures.value[k]);
                }
            }
            mass_[q] = mass, cost_[q] = cost.value();
        }
        start_.push_back(std::int64_t(column_.size()));
        rest_ = seconds_ = Rows{start_.data(), column_.data(), value_.data()};
    }
    Pendants(const Pendants&) = delete;

    std::int64_t support(std::int32_t v, bool second) const { return (second ? seconds_ : rest_).count(v); }
    bool is_pendant(std::int32_t v) const { return !parent_.empty() && parent_[v] >= 0; }

    // use(node, mass) for the measure of v, the second or the first of its pair with w, pendants but w counted in at v; returns what
    // it costs to get them there.
    template <class Use> double each(std::int32_t v, std::int32_t w, bool second, Use use) const {
        const Rows& rows = second ? seconds_ : rest_;
        for (std::int64_t k = rows.start[v]; k < rows.start[v + 1]; ++k) use(rows.column[k], rows.value[k]);
        if (parent_.empty() || mass_[v] == 0) return 0;
        if (parent_[w] != v) {
            use(v, mass_[v]);
            return cost_[v];
        }
        const double own = mass_at(v, w);
        if (own > 0) use(w, own);
        use(v, mass_[v] - own);
        return cost_[v] - own * job_.out.value[job_.out.start[w]];
    }

    // What a measure of doubles is multiplied by to sum to one, if edges differ in length: a mass of 1e-16 that has to go far is
    // more than one of 1/2 that goes nowhere.
    long double scale(std::int32_t v, bool second) const { return (second && !second_scale_.empty() ? second_scale_ : scale_)[v]; }

    // What rounding may add to the cost that `each` returns.
    double rounding(std::int32_t v) const { return parent_.empty() ? 0 : cost_[v] * 1e-15; }

  private:
    class Sum {  // of any number of terms, with the error of a few
      public:
        void add(double x) {
            const double more = x - lost_, next = sum_ + more;
            lost_ = (next - sum_) - more;
            sum_ = next;
        }
        double value() const { return sum_; }

      private:
        double sum_ = 0, lost_ = 0;
    };
    const Job& job_;
    Rows rest_, seconds_;
    std::vector<std::int32_t> parent_, column_;
    std::vector<std::int64_t> start_;
    std::vector<double> cost_, value_;
    std::vector<long double> mass_, scale_, second_scale_;

    void sum_up(const Rows& rows, std::vector<long double>& scale) const {
        scale.resize(job_.n);
        for (std::int32_t v = 0; v < job_.n; ++v) {
            long double sum = 0;
            for (std::int64_t k = rows.start[v]; k < rows.start[v + 1]; ++k) sum += rows.value[k];
            scale[v] = sum > 0 ? 1 / sum : 1;
        }
    }

    double mass_at(std::int32_t v, std::int32_t w) const {
        const auto* end = job_.measures.column + job_.measures.start[v + 1];
        const auto* found = std::lower_bound(job_.measures.column + job_.measures.start[v], end, w);
        return found != end && *found == w ? job_.measures.value[found - job_.measures.column] : 0;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

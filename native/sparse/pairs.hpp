// The pairs of one owner: distances once, then a transport problem for each pair.
#pragma once
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "distances.hpp"
#include "merge.hpp"
#include "pendants.hpp"
#include "transport.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

constexpr double UNPROVED = 1e-9;  // a relative gap above it is no value
constexpr std::size_t TABLE = std::size_t(1) << 24;  // distances kept at once, if more than one pair asks for them

using Term = std::pair<std::int64_t, double>;  // place in to_lengths or to_measures, and what to add
struct Gradient {
    std::vector<Term> lengths, measures;
};

class Pairs {
  public:
    Pairs(const Job& job, const Pendants& pendants) : job_(job), pendants_(pendants), distances_(job), excess_(job.n, 0), place_(job.n, -1), moved_(job.upstream ? job.n : 0) {}

    // Pairs by index; `back`: the owner is the second of each, and a directed search goes against the edges. `stopped` is asked
    // between pairs, `solved` is told of each.
    template <class Stopped, class Solved>
    void solve(std::int32_t owner, bool back, const std::int64_t* first, const std::int64_t* last, Gradient* gradient, Stopped stopped, Solved solved) {
        owner_ = owner, back_ = back;
        edges_ = back ? &job_.in : &job_.out;
        std::vector<std::int32_t>& sources = distances_.sources;
        sources.assign(1, owner);
        place_[owner] = 0;
        add_sources(owner, first, last);
        while (first != last && !stopped()) {
            const std::int64_t* end = first;
            while (end != last) {  // as many as the table holds, at least one
                add_targets(partner(*end));
                if (end != first && distances_.targets.size() * sources.size() > TABLE) break;  // with some targets too many
                ++end;
            }
            distances_.find(*edges_);
            for (; first != end && !stopped(); ++first) {
                one(*first, gradient);
                solved();
            }
            distances_.forget_targets();
            if (first != end) break;
        }
        for (const std::int32_t a : sources) place_[a] = -1;
        if (gradient) flush(*gradient);
    }

  private:
    const Job& job_;
    const Pendants& pendants_;
    Distances distances_;
    std::vector<double> excess_;        // by node, zero between pairs
    std::vector<std::int32_t> place_;   // of a node among the sources
    std::vector<std::int32_t> around_, rows_, columns_;
    std::vector<std::uint8_t> lines_, turned_;
    Merge merge_;
    Transport<std::int16_t> hops_;
    Transport<double> lengths_;
    Transport<long double> wide_;
    std::int32_t owner_ = 0;
    bool back_ = false;
    const Rows* edges_ = nullptr;
    struct Ray { std::int32_t from, to; double weight; };
    std::vector<bool> moved_;  // whether a node is a row or a column
    std::vector<Ray> rays_;  // flows along shortest ways, for gradients

    std::int32_t partner(std::int64_t k) const { return job_.pairs[2 * k + (back_ ? 0 : 1)]; }

    void add_source(std::int32_t node) {
        if (place_[node] >= 0) return;
        place_[node] = std::int32_t(distances_.sources.size());
        distances_.sources.push_back(node);
    }
    void add_sources(std::int32_t owner, const std::int64_t* first, const std::int64_t* last) {
        for (; first != last; ++first) {
            pendants_.each(owner, partner(*first), back_, [&](std::int32_t v, double) { add_source(v); });
            if (!pendants_.is_pendant(partner(*first))) break;  // the same for all others, but pendants of the owner
        }
        for (; first != last; ++first)
            if (pendants_.is_pendant(partner(*first))) add_source(partner(*first));
    }
    void add_targets(std::int32_t q) {
        distances_.add_target(q);
        pendants_.each(q, owner_, !back_, [&](std::int32_t v, double) { distances_.add_target(v); });
    }

    void one(std::int64_t k, Gradient* gradient) {
        const std::int32_t q = partner(k);
        const double distance = distances_.get(0, distances_.slot(q));
        const double denominator = job_.per_length ? job_.lengths[k] : distance;
        job_.distance[k] = distance, job_.denominator[k] = denominator;
        Status status = Status::solved;
        if (!(distance < FAR && denominator < FAR)) status = Status::unreachable;
        else if (denominator < job_.floor) status = Status::below_floor;
        else if (denominator == 0) status = Status::zero_distance;
        if (status != Status::solved) {
            job_.status[k] = std::uint8_t(status);
            return;
        }
        if (distances_.few_hops() && pendants_.support(owner_, back_) + pendants_.support(q, !back_) + 4 < std::int64_t(hops_.MOST))
            move(k, q, hops_, gradient);
        else move(k, q, lengths_, gradient);
    }

    template <class Cost> void move(std::int64_t k, std::int32_t q, Transport<Cost>& problem, Gradient* gradient) {
        finish(k, q, problem, lay_out(q, problem), gradient);
        for (const std::int32_t v : around_) excess_[v] = 0;
    }

    template <class Cost> void finish(std::int64_t k, std::int32_t q, Transport<Cost>& problem, double fixed, Gradient* gradient) {
        problem.solve();
        const double scale = std::is_integral_v<Cost> ? job_.hop : 1;
        const double w1 = fixed + problem.value * scale;
        double rounding = pendants_.rounding(owner_) + pendants_.rounding(q);
        if (std::is_integral_v<Cost>) rounding += 3 * job_.hop * double(around_.size()) * std::numeric_limits<double>::epsilon();
        const double gap = (problem.gap * scale + rounding) / std::max(w1, job_.denominator[k]);
        Status status = Status::solved;
        if (problem.stalled) status = Status::stalled;
        else if (problem.stuck) status = Status::unreachable;
        else if (!(gap <= UNPROVED)) status = Status::uncertain;
        if constexpr (std::is_same_v<Cost, double>)
            if (problem.stalled || status == Status::uncertain) {  // once more, with eleven more bits
                wide_.supply = problem.supply, wide_.demand = problem.demand, wide_.far = problem.far;
                wide_.cost.assign(problem.cost.begin(), problem.cost.end());
                return finish(k, q, wide_, fixed, gradient);
            }
        job_.status[k] = std::uint8_t(status);
        if (status == Status::solved) {
            job_.w1[k] = w1, job_.gap[k] = gap;
            if (gradient && job_.upstream[k] != 0) differentiate(k, q, problem, *gradient);
        }
    }

    // What has to move, and at which costs; returns the cost of what pendants force to move.
    template <class Cost> double lay_out(std::int32_t q, Transport<Cost>& problem) {
        around_.clear(), rows_.clear(), columns_.clear(), problem.clear();
        const auto add = [&](std::int32_t v, double mass) {
            if (excess_[v] == 0) around_.push_back(v);  // maybe twice, with nothing the second time
            excess_[v] += mass;
        };
        double fixed = pendants_.each(owner_, q, back_, add);
        fixed += pendants_.each(q, owner_, !back_, [&](std::int32_t v, double mass) { add(v, -mass); });
        if (job_.idle > 0) add(owner_, job_.idle), add(q, -job_.idle);
        for (const std::int32_t v : around_) {
            double& excess = excess_[v];
            if (excess > 0) rows_.push_back(v), problem.supply.push_back(excess);
            else if (excess < 0) columns_.push_back(v), problem.demand.push_back(-excess);
            excess = 0;
        }
        if constexpr (std::is_integral_v<Cost>) count_hops(problem);
        else measure_lengths(problem);
        return fixed;
    }

    // Distances in edges, of rows and columns that differ.
    void count_hops(Transport<std::int16_t>& problem) {
        const std::size_t sources = distances_.sources.size();
        lines_.resize(rows_.size() * columns_.size());
        std::uint8_t* line = lines_.data();
        for (const std::int32_t b : columns_) {
            const std::uint8_t* from = distances_.hops.data() + std::size_t(distances_.slot(b)) * sources;
            for (const std::int32_t a : rows_) *line++ = from[place_[a]];
        }
        merge_(lines_, rows_.size(), problem.demand);
        transpose(rows_.size(), problem.demand.size());
        merge_(lines_, problem.demand.size(), problem.supply);
        problem.cost.assign(lines_.begin(), lines_.end());
    }

    void transpose(std::size_t width, std::size_t count) {
        turned_.resize(width * count);
        for (std::size_t j = 0; j < count; ++j)
            for (std::size_t i = 0; i < width; ++i) turned_[i * count + j] = lines_[j * width + i];
        lines_.swap(turned_);
    }

    void measure_lengths(Transport<double>& problem) {
        const std::size_t sources = distances_.sources.size();
        problem.cost.resize(rows_.size() * columns_.size());
        double largest = 0;
        bool apart = false;
        for (std::size_t j = 0; j < columns_.size(); ++j) {
            const std::size_t line = std::size_t(distances_.slot(columns_[j])) * sources;
            for (std::size_t i = 0; i < rows_.size(); ++i) {
                const std::size_t at = line + std::size_t(place_[rows_[i]]);
                const double length = distances_.few_hops() ? job_.hop * distances_.hops[at] : distances_.lengths[at];
                problem.cost[i * columns_.size() + j] = length;
                if (length == FAR) apart = true;
                else largest = std::max(largest, length);
            }
        }
        problem.far = FAR;
        if (apart) {  // dearer than any way around
            problem.far = 2 * (1 + double(std::min(rows_.size(), columns_.size()))) * (largest > 0 ? largest : 1);
            for (double& cost : problem.cost) cost = std::min(cost, problem.far);
        }
    }

    // kappa = 1 + idle - W1 / D: by the flow on each edge, and by the potential of each mass.
    template <class Cost> void differentiate(std::int64_t k, std::int32_t q, const Transport<Cost>& problem, Gradient& gradient) {
        const double slope = -job_.upstream[k] / job_.denominator[k];
        const double below = job_.upstream[k] * job_.w1[k] / (job_.denominator[k] * job_.denominator[k]);
        if (rows_.size() && columns_.size())
            problem.each_flow([&](const Flow& f) {
                if (f.amount > 0) rays_.push_back({rows_[f.row], columns_[f.column], slope * f.amount});
            });
        if (!job_.per_length) rays_.push_back({owner_, q, below});
        else add_length(owner_, q, below, gradient);
        for (std::size_t i = 0; i < rows_.size(); ++i) excess_[rows_[i]] = problem.potential_of_row(int(i));
        for (std::size_t j = 0; j < columns_.size(); ++j) excess_[columns_[j]] = -problem.potential_of_column(int(j));
        const auto potential = [&](std::int32_t v) {
            if (rows_.empty() || columns_.empty()) return 0.0;
            if (moved_[v]) return excess_[v];
            double lowest = FAR;  // what stays: the largest potential that its way to each column allows
            for (const std::int32_t b : columns_) lowest = std::min(lowest, distances_.get(place_[v], distances_.slot(b)) + excess_[b]);
            return lowest < FAR ? lowest : 0.0;
        };
        for (const std::int32_t v : rows_) moved_[v] = true;
        for (const std::int32_t v : columns_) moved_[v] = true;
        const auto add = [&](std::int32_t node, double factor) {
            for (std::int64_t e = job_.measures.start[node]; e < job_.measures.start[node + 1]; ++e)
                gradient.measures.push_back({e, factor * potential(job_.measures.column[e])});
        };
        add(owner_, slope), add(q, -slope);
        for (const std::int32_t v : rows_) moved_[v] = false;
        for (const std::int32_t v : columns_) moved_[v] = false;
    }

    void add_length(std::int32_t v, std::int32_t w, double value, Gradient& gradient) {
        if (back_) std::swap(v, w);
        const auto* start = job_.out.column;
        const auto* found = std::lower_bound(start + job_.out.start[v], start + job_.out.start[v + 1], w);
        gradient.lengths.push_back({found - start, value});
    }

    // All flows of this owner, one search for each start.
    void flush(Gradient& gradient) {
        std::stable_sort(rays_.begin(), rays_.end(), [](const Ray& a, const Ray& b) { return a.from < b.from; });
        std::vector<std::int32_t> ends;
        for (std::size_t k = 0; k < rays_.size();) {
            std::size_t last = k;
            ends.clear();
            for (; last < rays_.size() && rays_[last].from == rays_[k].from; ++last) ends.push_back(rays_[last].to);
            distances_.trace(*edges_, rays_[k].from, ends, [&](std::size_t r, const std::vector<std::int64_t>& way) {
                for (const std::int64_t e : way) gradient.lengths.push_back({job_.directed && back_ ? -1 - e : e, rays_[k + r].weight});
            });
            k = last;
        }
        rays_.clear();
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

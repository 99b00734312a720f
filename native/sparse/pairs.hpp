// The steps of one thread: it gathers what owners ask for, searches from some nodes, and solves a transport problem for each pair.
#pragma once
#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "gradient.hpp"
#include "hop_transport.hpp"
#include "near_hops.hpp"
#include "pendants.hpp"
#include "round.hpp"
#include "search.hpp"
#include "sweep.hpp"
#include "transport.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

constexpr double UNPROVED = 1e-9;  // a relative gap above it is no value
constexpr std::size_t TABLE = std::size_t(1) << 24;  // distances of one ask, if more than one pair asks for them
constexpr int DISTANCES = 16;                        // more different ones are not kept as sets

class Pairs {
  public:
    Pairs(const Job& job, const Pendants& pendants, Round& round)
        : job_(job), pendants_(pendants), round_(round), excess_(job.n, 0), place_(job.n, -1), slot_(job.n, -1) {
        if (looks_around(job)) near_hops_.emplace(job);
        else if (job.hop > 0) sweep_.emplace(job);
        if (job.hop == 0 || job.upstream) search_.emplace(job), fine_excess_.assign(job.n, 0);
        if (job.upstream) gradient_.emplace(job);
    }

    // Whether distances are found around each owner, without a search.
    static bool looks_around(const Job& job) { return job.hop > 0 && job.near && !job.directed && !job.upstream; }

    // Sources and targets of the pairs of a group, in more than one part if they are too many.
    void gather(const Group& group, std::vector<Ask>& asks) {
        for (const std::int64_t* pair = group.first; pair != group.last;) {
            asks.emplace_back();
            pair = gather_some(group, pair, asks.back());
        }
    }

    void search(const Source* sources, int count, bool back) {
        if (sweep_) return sweep_->find(round_, sources, count, back);
        for (int k = 0; k < count; ++k) search_->find(round_, sources[k], back);
    }

    // `stopped` is asked between pairs, `solved` is told of each.
    template <class Stopped, class Solved> void solve(const Ask& ask, Terms* terms, Stopped stopped, Solved solved) {
        ask_ = &ask;
        for (std::size_t k = 0; k < ask.sources.size(); ++k) place_[ask.sources[k]] = std::int32_t(k);
        for (std::size_t k = 0; k < ask.targets.size(); ++k) slot_[ask.targets[k]] = std::int32_t(k);
        collect_sets();
        for (const std::int64_t* k = ask.first; k != ask.last && !stopped(); ++k) {
            one(*k, terms);
            solved();
        }
        if (terms) gradient_->flush(*search_, ask.back, *terms);
        for (const std::int32_t b : ask.targets) slot_[b] = -1;
        for (const std::int32_t v : ask.sources) place_[v] = -1;
    }

  private:
    const Job& job_;
    const Pendants& pendants_;
    Round& round_;
    std::optional<NearHops> near_hops_;
    std::optional<Sweep> sweep_;
    std::optional<Search> search_;
    std::optional<EdgeGradient> gradient_;
    std::vector<double> excess_;               // by node, zero between pairs
    std::vector<long double> fine_excess_;     // the same with more digits, where edges differ in length
    std::vector<std::int32_t> place_, slot_;   // of a node among the sources and the targets of the ask
    std::vector<std::int32_t> rows_, columns_;
    std::vector<double> masses_;               // of the columns
    std::vector<long double> fine_masses_;
    std::vector<std::uint64_t> sets_;
    HopTransport hops_;
    Transport<double> lengths_;
    Transport<long double> wide_;
    const Ask* ask_ = nullptr;
    int distances_ = 0;  // of the ask, if they are kept as sets
    int words_ = 0;

    std::int32_t partner(std::int64_t k, bool back) const { return job_.pairs[2 * k + (back ? 0 : 1)]; }

    // As many pairs as the table holds, at least one.
    const std::int64_t* gather_some(const Group& group, const std::int64_t* pair, Ask& ask) {
        ask.owner = group.owner, ask.back = group.back, ask.first = pair;
        const auto add = [](std::vector<std::int32_t>& nodes, std::vector<std::int32_t>& number, std::int32_t v) {
            if (number[v] >= 0) return;
            number[v] = std::int32_t(nodes.size());
            nodes.push_back(v);
        };
        const auto add_source = [&](std::int32_t v, double = 0) { add(ask.sources, place_, v); };
        const auto add_target = [&](std::int32_t v, double = 0) { add(ask.targets, slot_, v); };
        add_source(ask.owner);
        for (const std::int64_t* k = pair; k != group.last; ++k) {
            const std::int32_t q = partner(*k, ask.back);
            if (pendants_.is_pendant(q)) add_source(q);  // maybe of the owner
            else if (k != pair && !pendants_.is_pendant(partner(k[-1], ask.back))) continue;
            pendants_.each(ask.owner, q, ask.back, add_source);
        }
        while (pair != group.last) {
            add_target(partner(*pair, ask.back));
            pendants_.each(partner(*pair, ask.back), ask.owner, !ask.back, add_target);
            if (pair != ask.first && ask.targets.size() * ask.sources.size() > TABLE) break;  // with some targets too many
            ++pair;
        }
        ask.last = pair;
        for (const std::int32_t a : ask.sources) place_[a] = -1;
        for (const std::int32_t b : ask.targets) slot_[b] = -1;
        return pair;
    }

    // For each target, the sources at each distance, if there are few distances. No row is a column, so none is 0.
    void collect_sets() {
        words_ = int((ask_->sources.size() + 63) / 64);
        distances_ = 0;
        if (near_hops_) {
            near_hops_->find(ask_->sources, ask_->targets, slot_, sets_);
            distances_ = 3;
            return;
        }
        if (!sweep_ || job_.upstream) return;
        const std::size_t sources = ask_->sources.size();
        const std::int32_t* steps = round_.steps.data() + ask_->place;
        const int most = std::max(1, *std::max_element(steps, steps + sources * ask_->targets.size()));
        if (most > DISTANCES) return;
        distances_ = most;
        sets_.assign(ask_->targets.size() * std::size_t(most * words_), 0);
        for (std::size_t t = 0; t < ask_->targets.size(); ++t) {
            std::uint64_t* sets = sets_.data() + t * std::size_t(most * words_);
            for (std::size_t s = 0; s < sources; ++s, ++steps)
                if (*steps > 0) sets[std::size_t(*steps - 1) * words_ + s / 64] |= std::uint64_t(1) << (s % 64);
        }
    }

    double distance(std::int32_t source, std::int32_t target) const {
        if (near_hops_) return job_.hop;  // asked for the ends of an edge only
        const std::size_t cell = ask_->place + std::size_t(slot_[target]) * ask_->sources.size() + place_[source];
        if (!sweep_) return round_.lengths[cell];
        return round_.steps[cell] == Sweep::NEVER ? FAR : job_.hop * round_.steps[cell];
    }

    void one(std::int64_t k, Terms* terms) {
        const std::int32_t q = partner(k, ask_->back);
        const double length = distance(ask_->owner, q);
        const double denominator = job_.per_length ? job_.lengths[k] : length;
        job_.distance[k] = length, job_.denominator[k] = denominator;
        Status status = Status::solved;
        if (!(length < FAR && denominator < FAR)) status = Status::unreachable;
        else if (denominator < job_.floor) status = Status::below_floor;
        else if (denominator == 0) status = Status::zero_distance;
        if (status != Status::solved) {
            job_.status[k] = std::uint8_t(status);
            return;
        }
        if (search_) {
            const double fixed =
                split(q, fine_excess_, fine_masses_, pendants_.scale(ask_->owner, ask_->back), pendants_.scale(q, !ask_->back));
            measure_lengths(fine_excess_, fine_masses_);
            finish(k, q, lengths_, fixed, terms);
            for (const std::int32_t v : rows_) fine_excess_[v] = 0;
            return;
        }
        const double fixed = split(q, excess_, masses_, 1.0, 1.0);
        if (distances_ == 0) {  // too many to be kept as sets
            measure_lengths(excess_, masses_);
            finish(k, q, lengths_, fixed, terms);
        } else {
            count_hops();
            finish(k, q, hops_, fixed, terms);
        }
        for (const std::int32_t v : rows_) excess_[v] = 0;
    }

    // What has to move: what the owner's measure has more than the partner's are rows, with the excess; the other way round columns.
    // Returns the cost of what pendants force to move.
    template <class Real> double split(std::int32_t q, std::vector<Real>& excess, std::vector<Real>& masses, Real scale, Real other) {
        rows_.clear(), columns_.clear(), masses.clear();
        const std::int32_t owner = ask_->owner;
        const auto have = [&](std::int32_t v, Real mass) {
            if (!(mass > 0)) return;
            if (excess[v] == 0) rows_.push_back(v);
            excess[v] += mass * scale;
        };
        const auto miss = [&](std::int32_t v, Real mass) {
            if (excess[v] != 0) excess[v] -= mass * other;
            else if (mass > 0) columns_.push_back(v), masses.push_back(mass * other);
        };
        double fixed = pendants_.each(owner, q, ask_->back, have);
        if (job_.idle > 0) have(owner, Real(job_.idle) / scale);
        fixed += pendants_.each(q, owner, !ask_->back, miss);
        if (job_.idle > 0) miss(q, Real(job_.idle) / other);
        std::size_t kept = 0;
        for (const std::int32_t v : rows_) {
            if (excess[v] > 0) {
                rows_[kept++] = v;
                continue;
            }
            if (excess[v] < 0) columns_.push_back(v), masses.push_back(-excess[v]);
            excess[v] = 0;
        }
        rows_.resize(kept);
        return fixed;
    }

    void count_hops() {
        HopTransport& problem = hops_;
        problem.clear(words_, distances_);
        const int words = words_;
        for (const std::int32_t v : rows_) {
            problem.supply[place_[v]] = excess_[v];
            problem.rows[place_[v] / 64] |= std::uint64_t(1) << (place_[v] % 64);
        }
        problem.demand.swap(masses_);
        problem.levels.resize(columns_.size() * std::size_t(distances_ * words));
        std::uint64_t* level = problem.levels.data();
        for (const std::int32_t b : columns_) {
            if (near_hops_) {
                const std::uint64_t* sets = sets_.data() + std::size_t(slot_[b]) * std::size_t(NearHops::SETS * words);
                for (int w = 0; w < words; ++w) {
                    const std::uint64_t one = sets[w], two = sets[words + w], rows = problem.rows[w];
                    level[w] = one & rows, level[words + w] = two & ~one & rows, level[2 * words + w] = rows & ~two;
                }
            } else {
                const std::uint64_t* sets = sets_.data() + std::size_t(slot_[b]) * std::size_t(distances_ * words);
                for (int d = 0; d < distances_; ++d)
                    for (int w = 0; w < words; ++w) level[d * words + w] = sets[d * words + w] & problem.rows[w];
            }
            level += distances_ * words;
        }
    }

    template <class Real> void measure_lengths(const std::vector<Real>& excess, const std::vector<Real>& masses) {
        Transport<double>& problem = lengths_;
        problem.clear();
        for (const std::int32_t v : rows_) problem.supply.push_back(excess[v]);
        problem.demand.assign(masses.begin(), masses.end());
        problem.rounded = 8 * (1 + job_.idle) * double(std::numeric_limits<Real>::epsilon());
        problem.cost.resize(rows_.size() * columns_.size());
        double largest = 0;
        bool apart = false;
        for (std::size_t j = 0; j < columns_.size(); ++j)
            for (std::size_t i = 0; i < rows_.size(); ++i) {
                const double length = distance(rows_[i], columns_[j]);
                problem.cost[i * columns_.size() + j] = length;
                if (length == FAR) apart = true;
                else largest = std::max(largest, length);
            }
        problem.far = FAR, problem.largest = largest;
        if (apart) {  // dearer than any way around
            problem.far = 2 * (1 + double(std::min(rows_.size(), columns_.size()))) * (largest > 0 ? largest : 1);
            for (double& cost : problem.cost) cost = std::min(cost, problem.far);
        }
    }

    template <class Problem> void finish(std::int64_t k, std::int32_t q, Problem& problem, double fixed, Terms* terms) {
        constexpr bool hops = std::is_same_v<Problem, HopTransport>;
        problem.solve();
        const double scale = hops ? job_.hop : 1;
        const double w1 = fixed + problem.value * scale;
        const double nodes = double(rows_.size() + columns_.size());
        double rounding = pendants_.rounding(ask_->owner) + pendants_.rounding(q) + (nodes + 8) * std::numeric_limits<double>::denorm_min();
        if (hops) rounding += distances_ * job_.hop * nodes * std::numeric_limits<double>::epsilon();
        const double gap = (problem.gap * scale + rounding) / std::max(w1, job_.denominator[k]);
        Status status = Status::solved;
        if (problem.stalled) status = Status::stalled;
        else if (problem.stuck) status = Status::unreachable;
        else if (!(gap <= UNPROVED) || !(w1 / job_.denominator[k] < FAR)) status = Status::uncertain;  // or no double holds the ratio
        if constexpr (std::is_same_v<Problem, Transport<double>>)
            if (problem.stalled || status == Status::uncertain) {  // once more, with eleven more bits
                wide_.supply = problem.supply, wide_.demand = problem.demand, wide_.far = problem.far, wide_.largest = problem.largest,
                wide_.rounded = problem.rounded;
                wide_.cost.assign(problem.cost.begin(), problem.cost.end());
                return finish(k, q, wide_, fixed, terms);
            }
        job_.status[k] = std::uint8_t(status);
        if (status != Status::solved) return;
        job_.w1[k] = w1, job_.gap[k] = gap;
        if constexpr (!hops)
            if (terms && job_.upstream[k] != 0)
                gradient_->add(
                    k, *ask_, q, rows_, columns_, problem, [&](std::int32_t a, std::int32_t b) { return distance(a, b); }, *terms);
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA

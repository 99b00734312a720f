// Graphs and pairs -> transport distances with certificates. Compiled once per instruction set.
#include <mutex>
#include <optional>

#include "cuts.hpp"
#include "gradient.hpp"
#include "tree.hpp"

namespace geoattn::GEOATTN_ISA {
namespace {

// Units of mass. Two thirds of a sign bit and, for the idle mass, a factor of eight are left free.
template <class Mass> constexpr double WHOLE = std::is_same_v<Mass, std::int64_t> ? 0x1p62 : 0x1p125;
// A bound of the error of kappa, relative to max(1, |kappa|), above which a pair is solved again in higher precision.
constexpr double GOOD_ENOUGH = 1e-11;
// ... and above which there is no value.
constexpr double PROMISED = 1e-9;

// The measure of a node on the classes of its network, as integers. What the row lacks of one is spread in proportion, as
// dividing by the sum would do, but exactly: equal entries stay equal and zeros stay zero. Mass outside the network stays
// where it is: `solve_part` checks that it may.
template <class Mass>
void round_measure(const double* measure, const Prepared& p, int part, int n, double whole, Mass* mass) {
    double outside = 0;
    Mass inside = 0;
    int largest = -1;
    for (int v = 0; v < n; ++v) {
        if (p.part[v] != part) {
            outside += measure[v];
            continue;
        }
        const Mass m = Mass(measure[v] * whole + 0.5);
        mass[p.label[v]] += m;
        inside += m;
        if (largest < 0 || measure[v] > measure[largest]) largest = v;
    }
    Mass lack = Mass((1.0 - outside) * whole) - inside;
    const double spread = as_double(lack);
    for (int v = 0; v < n; ++v) {
        if (p.part[v] != part) continue;
        const Mass share = Mass(spread * measure[v]);
        mass[p.label[v]] += share;
        lack -= share;
    }
    mass[p.label[largest]] += lack;
}

struct Pair {
    std::int64_t edge;
    int x, y;  // classes, for the order
};

// The places of the classes in an order in which neighbours have similar measures. Greedy nearest neighbour in total
// variation; O(n^3) additions, which only many pairs repay.
std::vector<int> similar_order(const std::vector<int>& nodes, const double* measures, int n) {
    const int count = int(nodes.size());
    std::vector<int> order{0}, place(count, 0);
    std::vector<char> used(count, 0);
    used[0] = 1;
    while (int(order.size()) < count) {
        const double* last = measures + std::size_t(nodes[order.back()]) * n;
        double best = INF;
        int next = -1;
        for (int c = 0; c < count; ++c) {
            if (used[c]) continue;
            const double* row = measures + std::size_t(nodes[c]) * n;
            double sum[4] = {0, 0, 0, 0};
            int k = 0;
            for (; k + 4 <= n; k += 4)
                for (int l = 0; l < 4; ++l) sum[l] += std::fabs(last[k + l] - row[k + l]);
            for (; k < n; ++k) sum[0] += std::fabs(last[k] - row[k]);
            const double apart = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            if (apart < best || next < 0) best = apart, next = c;
        }
        used[next] = 1;
        place[next] = int(order.size());
        order.push_back(next);
    }
    return place;
}

// Where the tree of one pair starts the next, neighbouring pairs are to share a measure: rows forth and back.
void sort_for_warm_starts(std::vector<Pair>& pairs, const Network& net, const double* measures, int n) {
    if (net.n > 2 && net.n <= 1024 && pairs.size() >= 4 * std::size_t(net.n)) {
        const std::vector<int> place = similar_order(net.members, measures, n);
        for (Pair& q : pairs) q.x = place[q.x], q.y = place[q.y];
    }
    std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
        if (a.x != b.x) return a.x < b.x;
        return a.x % 2 ? a.y > b.y : a.y < b.y;
    });
}

// The measures of all nodes that the pairs name, rounded to units of one kind of mass.
template <class Mass> struct Masses {
    double whole;
    Mass idle;
    int classes;
    std::vector<Mass> data;

    Masses(const Job& job, std::int64_t g, const Prepared& p, int part, const std::vector<int>& named, int classes, Crew& crew)
        : whole(job.idle > 0 ? WHOLE<Mass> / 8 : WHOLE<Mass>), idle(Mass(job.idle * whole)), classes(classes),
          data(named.size() * std::size_t(classes), 0) {
        const double* measures = job.measures + g * std::size_t(job.n) * job.n;
        crew.each_block(int(named.size()), [&](int from, int end) {
            for (int k = from; k < end; ++k)
                round_measure(measures + std::size_t(named[k]) * job.n, p, part, job.n, whole, &data[std::size_t(k) * classes]);
        });
    }
    const Mass* operator[](int slot) const { return &data[std::size_t(slot) * classes]; }
};

// Where mass may move: between so many classes, over edges no longer than what lies between them.
struct Extent {
    int classes;
    double diameter;
};

// Of the two measures alone: a token at distance 1e27 that neither of them knows has no part in the error of a W1 of 0.1.
Extent extent_of(const Network& net, const Prepared& p, int part, const double* measures, int x, int y, int n) {
    const double *from = measures + std::size_t(x) * n, *to = measures + std::size_t(y) * n;
    std::vector<char> touched(net.n, 0);
    touched[p.label[x]] = touched[p.label[y]] = 1;  // idle mass
    for (int v = 0; v < n; ++v)
        if (p.part[v] == part && (from[v] > 0 || to[v] > 0)) touched[p.label[v]] = 1;
    Extent extent{0, 0.0};
    for (int a = 0; a < net.n; ++a) {
        if (!touched[a]) continue;
        ++extent.classes;
        for (int b = 0; b < net.n; ++b)
            if (touched[b] && net.distances[a][b] < INF) extent.diameter = std::max(extent.diameter, net.distances[a][b]);
    }
    return extent;
}

struct Answer {
    Outcome outcome;
    double w1 = NAN, excess = NAN;  // excess: a bound of w1 - optimum
};

// The k-th pair of the solver's plan.
template <class Solver, class Mass>
Answer answer(Solver& solver, int k, const Network& net, const Extent& extent, const Supplies<Mass>& supplies, double idle, double whole,
              double denominator, const Stop& stop) {
    Answer result{solver.solve(supplies, k, 4.0 * net.n, stop)};
    if (result.outcome != Outcome::optimal) return result;
    Mass apart = 0;
    for (int v = 0; v < net.n; ++v) apart += std::max<Mass>(supplies.from[v] - supplies.to[v], 0);
    const double moved = idle * whole + as_double(apart);
    result.w1 = solver.cost() / whole;
    // Rounding may have put each class off by a unit, over the diameter at worst.
    const double rounding = extent.classes * extent.diameter, enough = GOOD_ENOUGH * std::max(denominator, result.w1) * whole - rounding;
    result.excess = (solver.excess(moved, extent.diameter, enough) + rounding) / whole;
    return result;
}

template <class Solver>
void solve_part(Job& job, std::int64_t g, const Prepared& p, int id, std::vector<Pair>& pairs, Crew& crew) {
    const Network& net = p.networks[p.network_of_part[id]];
    const int n = job.n;
    const double* measures = job.measures + g * std::size_t(n) * n;
    std::vector<int> slot(n, -1), named;
    for (const Pair& q : pairs) {
        for (int x : {job.pairs[2 * q.edge], job.pairs[2 * q.edge + 1]})
            if (slot[x] < 0) slot[x] = int(named.size()), named.push_back(x);
        if (int(named.size()) == n) break;
    }
    const Masses<std::int64_t> masses(job, g, p, id, named, net.n, crew);
    std::optional<Masses<Wide>> wide_masses;
    std::once_flag made;
    bool leaves = false;  // whether any measure has mass outside the network
    for (int x : named)
        for (int v = 0; v < n; ++v) leaves |= p.part[v] != id && measures[std::size_t(x) * n + v] > 0;

    const auto stays_outside = [&](int x, int y) {
        for (int v = 0; v < n; ++v)
            if (p.part[v] != id && measures[std::size_t(x) * n + v] != measures[std::size_t(y) * n + v]) return false;
        return true;
    };
    const auto supplies_of = [&](const auto& m, std::int64_t e) {
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
        return Supplies{m[slot[x]], m[slot[y]], p.label[x], p.label[y], m.idle};
    };

    const bool warm = net.step.empty();
    if (warm) sort_for_warm_starts(pairs, net, measures, n);
    // Enough chunks for all threads to end together; where a warm start begins must not depend on their number.
    const std::size_t chunk = warm ? std::clamp<std::size_t>(pairs.size() / 24, 64, 512) : 8;
    const std::size_t chunks = (pairs.size() + chunk - 1) / chunk;
    // All chunks start from the tree of the first pair: from scratch it takes many times the pivots of the others.
    std::optional<Solver> first;
    if (warm) first.emplace(net);
    if (warm && pairs.size() > chunk) {
        const std::int64_t e = pairs[0].edge;
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
        first->solve({masses[slot[x]], masses[slot[y]], p.label[x], p.label[y], masses.idle}, 0, 4.0 * net.n, job.stop);
    }
    std::atomic<std::size_t> next{0};
    crew.each(int(std::min(chunks, std::size_t(crew.size()))), [&](int) {
        std::optional<Solver> own;
        std::optional<Tree<Wide, Quad>> exact_tree;  // rare
        auto record = [&](const auto& t, std::int64_t e) {
            if (job.potentials)
                for (int v = 0; v < n; ++v) job.potentials[e * n + v] = p.part[v] == id ? t.potential(p.label[v]) : NAN;
            if (!job.trees) return;
            std::int32_t* row = job.trees + e * n;
            std::fill(row, row + n, -1);
            t.branches([&](int v, int parent, bool falls) { row[net.members[v]] = net.members[parent] * 2 + falls; });
        };
        for (std::size_t c; (c = next.fetch_add(1)) < chunks;) {
            if (warm) own.emplace(*first);
            else if (!own) own.emplace(net);
            Solver& solver = *own;
            exact_tree.reset();
            for (std::size_t k = c * chunk, end = std::min(pairs.size(), k + chunk); k < end;) {
                std::int64_t edges[Solver::TOGETHER] = {};
                Supplies<std::int64_t> supplies[Solver::TOGETHER] = {};
                int count = 0;
                for (; k < end && count < Solver::TOGETHER; ++k) {
                    const std::int64_t e = edges[count] = pairs[k].edge;
                    const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
                    if (leaves && !stays_outside(x, y)) {
                        job.done.fetch_add(1, std::memory_order_relaxed);
                        job.status[e] = std::uint8_t(Status::unreachable);
                        continue;
                    }
                    supplies[count++] = supplies_of(masses, e);
                }
                if (job.stop.asked()) return;
                solver.plan(supplies, count, 4.0 * net.n, job.stop);
                for (int q = 0; q < count; ++q) {
                    if (job.stop.asked()) return;
                    job.done.fetch_add(1, std::memory_order_relaxed);
                    const std::int64_t e = edges[q];
                    Answer a = answer(solver, q, net, {net.n, net.reach}, supplies[q], job.idle, masses.whole, job.denominator[e], job.stop);
                    const double scale = std::max(job.denominator[e], a.w1);
                    const bool again = a.outcome == Outcome::stalled || (a.outcome == Outcome::optimal && !(a.excess <= GOOD_ENOUGH * scale));
                    if (again) {
                        Crew alone(1);
                        std::call_once(made, [&] { wide_masses.emplace(job, g, p, id, named, net.n, alone); });
                        if (!exact_tree) exact_tree.emplace(net);
                        const Extent extent = extent_of(net, p, id, measures, job.pairs[2 * e], job.pairs[2 * e + 1], n);
                        a = answer(*exact_tree, 0, net, extent, supplies_of(*wide_masses, e), job.idle, wide_masses->whole, job.denominator[e], job.stop);
                    }
                    if (a.outcome != Outcome::optimal) {
                        job.status[e] = std::uint8_t(a.outcome == Outcome::unbounded ? Status::unreachable : Status::stalled);
                        continue;
                    }
                    if (!(a.excess <= PROMISED * std::max(job.denominator[e], a.w1))) {
                        job.status[e] = std::uint8_t(Status::uncertain);
                        continue;
                    }
                    job.w1[e] = a.w1;
                    job.gap[e] = a.excess / std::max(job.denominator[e], a.w1);
                    job.status[e] = std::uint8_t(Status::solved);
                    if (again) record(*exact_tree, e);
                    else record(solver, e);
                }
            }
        }
    });
}

void solve_graph(Job& job, std::int64_t g, Crew& crew) {
    if (job.offsets[g] == job.offsets[g + 1]) return;
    const Prepared p = prepare(job, g, crew);
    if (job.stop.asked()) return;
    std::vector<std::vector<Pair>> work(p.networks.size());
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
        const double distance = p.distances[x][y], denominator = job.per_length ? p.lengths[x][y] : distance;
        job.distance[e] = distance;
        job.denominator[e] = denominator;
        Status status = Status::solved;
        if (!(distance < INF) || !(denominator < INF)) status = Status::unreachable;
        else if (denominator < job.floor) status = Status::below_floor;
        else if (distance == 0) status = Status::zero_distance;
        job.status[e] = std::uint8_t(status);
        if (status != Status::solved) {
            job.done.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        const int k = p.network_of_part[p.part[x]];
        if (work[k].empty()) work[k].reserve(std::size_t(job.offsets[g + 1] - e));
        work[k].push_back({e, p.label[x], p.label[y]});
    }
    for (std::size_t id = 0; id < p.network_of_part.size(); ++id) {
        const int k = p.network_of_part[id];
        if (k < 0 || work[k].empty()) continue;
        const auto solve = [&](auto part) { part(job, g, p, int(id), work[k], crew); };
        switch (p.networks[k].rough_stride) {
            case 32: solve(solve_part<Cuts<1, 2>>); break;
            case 80: solve(solve_part<Cuts<1, 5>>); break;
            case 144: solve(solve_part<Cuts<2, 9>>); break;
            case 208: solve(solve_part<Cuts<4, 13>>); break;
            case 272: solve(solve_part<Cuts<4, 17>>); break;
            default: solve(solve_part<Tree<std::int64_t, double>>);
        }
    }
}

}  // namespace

void solve(Job& job) {
    const bool by_graph = job.graphs >= 2 * job.threads || job.n < 48;
    const std::int64_t useful = by_graph ? job.graphs : job.n > 128 ? job.threads : job.offsets[job.graphs] / 16;
    Crew crew(int(std::min<std::int64_t>(job.threads, useful)), &job.stop);
    if (by_graph) {
        crew.each(int(job.graphs), [&](int g) {
            Crew alone(1);
            if (!job.stop.asked()) solve_graph(job, g, alone);
        });
    } else {
        for (std::int64_t g = 0; g < job.graphs && !job.stop.asked(); ++g) solve_graph(job, g, crew);
    }
}

void shortest_paths(double* distances, int n, bool directed, int threads, const Stop& stop) {
    Matrix d(n);
    for (int i = 0; i < n; ++i) std::copy(distances + std::size_t(i) * n, distances + std::size_t(i + 1) * n, d[i]);
    Crew crew(n > 512 ? threads : 1, &stop);
    all_pairs(d, directed, crew, stop);
    for (int i = 0; i < n; ++i) std::copy(d[i], d[i] + n, distances + std::size_t(i) * n);
}

void pull_back(const Backward& backward) { gradients(backward); }

}  // namespace geoattn::GEOATTN_ISA

// Graphs and pairs -> transport distances with certificates. Compiled once per instruction set.
#include <map>
#include <mutex>
#include <optional>

#include "by_levels.hpp"
#include "cut_ties.hpp"
#include "gradient.hpp"
#include "prefix_network.hpp"

namespace geoattn::GEOATTN_ISA {
namespace {

// The pairs of one part, each from a tree of its own: no value depends on the other pairs, nor on the threads. `guests`: their nodes
// lie in other parts, and what the measures move within this one is added to what is known. `net`: of the part, or of its first
// classes; pairs that these do not prove are added to `left`.
template <class Solver>
void solve_part(Job& job, std::int64_t g, const Prepared& p, int id, const Network& net, const std::vector<std::int64_t>& pairs,
                bool guests, std::vector<std::int64_t>* left, Crew& crew) {
    const int n = job.n;
    std::mutex mutex;  // of `left`
    const double* measures = job.measures + std::size_t(g) * n * n;
    std::vector<int> slot(n, -1), named;
    for (const std::int64_t e : pairs) {
        for (int x : {job.pairs[2 * e], job.pairs[2 * e + 1]})
            if (slot[x] < 0) slot[x] = int(named.size()), named.push_back(x);
        if (int(named.size()) == n) break;
    }
    const Masses<std::int64_t> masses(job, g, p, id, named, p.networks[p.network_of_part[id]].n, crew);
    std::optional<Masses<Wide>> wide_masses;
    std::once_flag made;
    const auto supplies_of = [&](const auto& m, std::int64_t e) {
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
        if (guests) return Supplies{m[slot[x]], m[slot[y]], 0, 0, decltype(m.idle){0}, 0.0};
        return Supplies{m[slot[x]], m[slot[y]], p.label[x], p.label[y], m.idle, 0.99 * job.tolerance * job.denominator[e] * m.whole};
    };
    const double idle = guests ? 0.0 : job.idle;
    constexpr std::size_t CHUNK = Solver::TOGETHER;
    const std::size_t chunks = (pairs.size() + CHUNK - 1) / CHUNK;
    std::atomic<std::size_t> next{0};
    crew.each(int(std::min(chunks, std::size_t(crew.size()))), [&](int) {
        Solver solver(net);
        if (!job.trees && !job.potentials) solver.values_only();
        std::optional<TreeSimplex<Wide, Quad>> exact;  // rare
        const auto record = [&](const auto& t, std::int64_t e) {
            for (int v = 0; job.potentials && v < n; ++v)
                if (p.part[v] == id) job.potentials[e * n + v] = t.potential(p.label[v]);
            if (!job.trees) return;
            std::int32_t* row = job.trees + e * n;
            t.branches([&](int v, int parent, bool falls) { row[net.members[v]] = net.members[parent] * 2 + falls; });
        };
        for (std::size_t c; (c = next.fetch_add(1)) < chunks;) {
            std::int64_t edges[CHUNK] = {};
            Supplies<std::int64_t> supplies[CHUNK] = {};
            int count = 0;
            for (std::size_t k = c * CHUNK; k < std::min(pairs.size(), (c + 1) * CHUNK); ++k) {
                edges[count] = pairs[k];
                supplies[count++] = supplies_of(masses, pairs[k]);
            }
            if (job.stop.asked()) return;
            const double negligible = STRAY * masses.whole;
            solver.plan(supplies, count, negligible, job.stop);
            for (int q = 0; q < count; ++q) {
                if (job.stop.asked()) return;
                if (!guests) job.done.fetch_add(1, std::memory_order_relaxed);
                const std::int64_t e = edges[q];
                const double wide = job.tolerance * job.denominator[e];  // what the caller allows
                const auto found = [&](Outcome outcome) {
                    return answer(solver, outcome, net, {net.n, net.reach}, supplies[q], idle, masses.whole);
                };
                const auto unproved = [&](const Answer& a) {
                    const double scale = std::max(job.denominator[e], a.w1);
                    return a.outcome == Outcome::stalled ||
                           (a.outcome == Outcome::optimal && !(a.excess <= std::max(GOOD_ENOUGH * scale, wide)));
                };
                Answer a = found(solver.solve(supplies[q], q, negligible, job.stop));
                if (left && unproved(a)) {
                    job.done.fetch_sub(1, std::memory_order_relaxed);
                    const std::lock_guard lock(mutex);
                    left->push_back(e);
                    continue;
                }
                if (unproved(a) && solver.by_roles()) a = found(solver.solve_by_edges(supplies[q], q, negligible, job.stop));
                const double scale = std::max(job.denominator[e], a.w1);
                const bool again = unproved(a);
                if (again) {
                    Crew alone(1);
                    std::call_once(made, [&] { wide_masses.emplace(job, g, p, id, named, net.n, alone); });
                    exact.emplace(net);  // from scratch: no value depends on other pairs
                    const Moves moves = moves_of(net, p, id, measures, job.pairs[2 * e], job.pairs[2 * e + 1], n);
                    const auto wide_supplies = supplies_of(*wide_masses, e);
                    a = answer(*exact, exact->solve(wide_supplies, 0, STRAY * wide_masses->whole, job.stop), net, moves, wide_supplies,
                               idle, wide_masses->whole);
                }
                if (guests && a.outcome == Outcome::optimal)
                    a.excess += job.gap[e] * std::max(job.denominator[e], job.w1[e]), a.w1 += job.w1[e];
                const bool proved = a.excess <= std::max(PROMISED * std::max(job.denominator[e], a.w1), wide);
                if (a.outcome != Outcome::optimal || !proved) {
                    job.status[e] = std::uint8_t(a.outcome == Outcome::optimal     ? Status::uncertain
                                                 : a.outcome == Outcome::unbounded ? Status::unreachable
                                                                                   : Status::stalled);
                    job.w1[e] = job.gap[e] = NAN;
                    continue;
                }
                // the middle of the interval
                if (!again && !guests && a.excess > GOOD_ENOUGH * scale) a.excess /= 2, a.w1 -= a.excess;
                job.w1[e] = a.w1;
                job.gap[e] = a.excess / std::max(job.denominator[e], a.w1);
                job.status[e] = std::uint8_t(Status::solved);
                if (again) record(*exact, e);
                else record(solver, e);
            }
        }
    });
}

// The pairs of a part whose nodes all coincide: nothing moves.
void stay(Job& job, const Prepared& p, int id, const std::vector<std::int64_t>& pairs, bool guests) {
    const int n = job.n, only = p.networks[p.network_of_part[id]].members[0];
    for (const std::int64_t e : pairs) {
        if (!guests) {
            job.done.fetch_add(1, std::memory_order_relaxed);
            job.status[e] = std::uint8_t(Status::solved);
            job.w1[e] = job.gap[e] = 0;
        }
        for (int v = 0; job.potentials && v < n; ++v)
            if (p.part[v] == id) job.potentials[e * n + v] = 0.0;
        if (job.trees) job.trees[e * n + only] = 2 * only;
    }
}

void solve_on(const Network& net, Job& job, std::int64_t g, const Prepared& p, int id, const std::vector<std::int64_t>& pairs, bool guests,
              std::vector<std::int64_t>* left, Crew& crew) {
    const auto solve = [&](auto part) { part(job, g, p, id, net, pairs, guests, left, crew); };
    switch (net.n > Network::FIXED ? 0 : net.vectors) {
        case 2: solve(solve_part<CutSimplex<2>>); break;
        case 5: solve(solve_part<CutSimplex<5>>); break;
        case 9: solve(solve_part<CutSimplex<9>>); break;
        case 13: solve(solve_part<CutSimplex<13>>); break;
        case 17: solve(solve_part<CutSimplex<17>>); break;
        case 21: solve(solve_part<CutSimplex<21>>); break;
        case 25: solve(solve_part<CutSimplex<25>>); break;
        case 29: solve(solve_part<CutSimplex<29>>); break;
        case 33: solve(solve_part<CutSimplex<33>>); break;
        default: solve(solve_part<CutSimplex<0>>);
    }
}

// Solves pairs whose measures end early on the first classes alone; returns the others, and what was not proved there.
std::vector<std::int64_t> solve_on_prefixes(Job& job, std::int64_t g, const Prepared& p, int id, const std::vector<std::int64_t>& pairs,
                                            Crew& crew) {
    const Network& net = p.networks[p.network_of_part[id]];
    const int n = job.n;
    std::vector<int> end(n, 0);  // one more than the last class that the measure of a node has
    std::map<int, std::vector<std::int64_t>> by_size;
    for (const std::int64_t e : pairs) {
        int last = 0;
        for (const int x : {job.pairs[2 * e], job.pairs[2 * e + 1]}) {
            if (!end[x]) {
                const double* measure = job.measures + (std::size_t(g) * n + x) * n;
                end[x] = p.label[x] + 1;
                for (int v = 0; v < n; ++v)
                    if (measure[v] > 0 && p.part[v] == id) end[x] = std::max(end[x], p.label[v] + 1);
            }
            last = std::max(last, end[x]);
        }
        by_size[prefix_size(net, last)].push_back(e);
    }
    std::vector<std::int64_t> left;
    for (const auto& [size, some] : by_size) {
        if (job.stop.asked()) break;
        if (size == net.n) left.insert(left.end(), some.begin(), some.end());
        else solve_on(prefix_of(net, size, crew), job, g, p, id, some, false, &left, crew);
    }
    std::sort(left.begin(), left.end());
    return left;
}

void solve_pairs_of(Job& job, std::int64_t g, const Prepared& p, int id, const std::vector<std::int64_t>& pairs, bool guests, Crew& crew) {
    const Network& net = p.networks[p.network_of_part[id]];
    if (net.n == 1) return stay(job, p, id, pairs, guests);  // and still an edge between two of its nodes may be long
    const bool values_only = !job.trees && !job.potentials;
    if (guests || !values_only || job.tolerance > 0) return solve_on(net, job, g, p, id, pairs, guests, nullptr, crew);
    std::vector<std::int64_t> left = pairs;
    if (net.levels.count()) left = solve_by_levels(job, g, p, id, pairs, crew);
    if (net.by_roles && !job.stop.asked()) left = solve_on_prefixes(job, g, p, id, left, crew);
    if (!left.empty() && !job.stop.asked()) solve_on(net, job, g, p, id, left, false, nullptr, crew);
}

// What the measures of a pair have in other parts than their nodes: it may move there, and cannot leave.
class Guests {
  public:
    Guests(const Job& job, std::int64_t g, const Prepared& p)
        : job_(job), p_(p), measures_(job.measures + std::size_t(g) * job.n * job.n), more_(p.network_of_part.size()),
          apart_(more_.size()) {}

    // Whether the two measures weigh the same in every other part, up to rounding.
    bool balanced(std::int64_t e) {
        weigh(e);
        return std::all_of(more_.begin(), more_.end(), [](double more) { return std::fabs(more) <= STRAY; });
    }

    // The parts in which something moves.
    template <class Visit> void each_part(std::int64_t e, Visit visit) {
        weigh(e);
        for (std::size_t id = 0; id < apart_.size(); ++id)
            if (apart_[id] > STRAY) visit(int(id));
    }

  private:
    const Job& job_;
    const Prepared& p_;
    const double* measures_;
    std::vector<double> more_, apart_;

    void weigh(std::int64_t e) {
        const int n = job_.n, x = job_.pairs[2 * e], y = job_.pairs[2 * e + 1];
        std::fill(more_.begin(), more_.end(), 0.0), std::fill(apart_.begin(), apart_.end(), 0.0);
        for (int v = 0; v < n; ++v) {
            const double difference = measures_[std::size_t(x) * n + v] - measures_[std::size_t(y) * n + v];
            more_[p_.part[v]] += difference, apart_[p_.part[v]] += std::fabs(difference);
        }
        more_[p_.part[x]] = apart_[p_.part[x]] = 0;
    }
};

void solve_guests(Job& job, std::int64_t g, const Prepared& p, Guests& guests, Crew& crew) {
    std::vector<std::vector<std::int64_t>> work(p.network_of_part.size());
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e)
        if (job.status[e] == std::uint8_t(Status::solved)) guests.each_part(e, [&](int id) { work[id].push_back(e); });
    for (std::size_t id = 0; id < work.size(); ++id) {
        std::erase_if(work[id], [&](std::int64_t e) { return job.status[e] != std::uint8_t(Status::solved); });
        if (!work[id].empty()) solve_pairs_of(job, g, p, int(id), work[id], true, crew);
    }
}

void solve_graph(Job& job, std::int64_t g, Crew& crew) {
    if (job.offsets[g] == job.offsets[g + 1]) return;
    const Prepared p = prepare(job, g, crew);
    if (job.stop.asked()) return;
    if (job.trees) std::fill(job.trees + job.offsets[g] * job.n, job.trees + job.offsets[g + 1] * job.n, -1);
    if (job.potentials) std::fill(job.potentials + job.offsets[g] * job.n, job.potentials + job.offsets[g + 1] * job.n, NAN);
    Guests guests(job, g, p);
    std::vector<std::vector<std::int64_t>> work(p.networks.size());
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1], k = p.network_of_part[p.part[x]];
        const double distance = p.part[x] == p.part[y] ? p.networks[k].given_distance(p.label[x], p.label[y]) : INF;
        const double denominator = job.per_length ? p.lengths[std::size_t(x) * job.n + y] : distance;
        job.distance[e] = distance;
        job.denominator[e] = denominator;
        Status status = Status::solved;
        if (!(distance < INF) || !(denominator < INF)) status = Status::unreachable;
        else if (denominator < job.floor) status = Status::below_floor;
        else if (denominator == 0) status = Status::zero_distance;
        else if (p.leaves && !guests.balanced(e)) status = Status::unreachable;
        job.status[e] = std::uint8_t(status);
        if (status != Status::solved) {
            job.done.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        if (work[k].empty()) work[k].reserve(std::size_t(job.offsets[g + 1] - e));
        work[k].push_back(e);
    }
    for (std::size_t id = 0; id < p.network_of_part.size(); ++id)
        if (const int k = p.network_of_part[id]; k >= 0 && !work[k].empty()) solve_pairs_of(job, g, p, int(id), work[k], false, crew);
    if (p.leaves && !job.stop.asked()) solve_guests(job, g, p, guests, crew);
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
    const std::vector<double> given(distances, distances + std::size_t(n) * n);
    const Lengths lengths(given.data(), n, 0.0);
    Crew crew(n > 256 ? threads : 1, &stop);
    const PathSearch search(lengths, directed, crew, stop);
    crew.each_block(n, [&](int from, int end) {
        PathSearch::Search s(n);
        for (int u = from; u < end && !stop.asked(); ++u) {
            search.from(u, s);
            std::copy_n(s.distance.data(), n, distances + std::size_t(u) * n);
        }
    });
    if (!directed)  // sums in another order may differ in the last bit
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < i; ++j)
                distances[std::size_t(i) * n + j] = distances[std::size_t(j) * n + i] =
                    std::min(distances[std::size_t(i) * n + j], distances[std::size_t(j) * n + i]);
}

void pull_back(const Backward& backward) { gradients(backward); }

}  // namespace geoattn::GEOATTN_ISA

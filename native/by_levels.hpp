// The pairs of a map with few different distances, each without a tree.
#pragma once
#include <mutex>

#include "answer.hpp"
#include "level_flow.hpp"

namespace geoattn::GEOATTN_ISA {

// Values of the pairs of one part, for callers who ask for no trees and no potentials; returns those that this does not prove.
inline std::vector<std::int64_t> solve_by_levels(Job& job, std::int64_t g, const Prepared& p, int id,
                                                 const std::vector<std::int64_t>& pairs, Crew& crew) {
    const Network& net = p.networks[p.network_of_part[id]];
    std::vector<int> slot(job.n, -1), named;
    for (const std::int64_t e : pairs)
        for (const int x : {job.pairs[2 * e], job.pairs[2 * e + 1]})
            if (slot[x] < 0) slot[x] = int(named.size()), named.push_back(x);
    const Masses<std::int64_t> masses(job, g, p, id, named, net.n, crew);
    std::vector<std::int64_t> left;
    std::mutex mutex;  // of `left`
    std::atomic<std::size_t> next{0};
    crew.each(int(std::min(pairs.size(), std::size_t(crew.size()))), [&](int) {
        LevelFlow solver(net);
        for (std::size_t k; (k = next.fetch_add(1)) < pairs.size() && !job.stop.asked();) {
            const std::int64_t e = pairs[k];
            const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
            const Supplies<std::int64_t> supplies{masses[slot[x]], masses[slot[y]], p.label[x], p.label[y], masses.idle};
            const Outcome outcome = solver.solve(supplies, STRAY * masses.whole);
            const Answer a = answer(solver, outcome, net, {net.n, net.reach}, supplies, job.idle, masses.whole);
            const double scale = std::max(job.denominator[e], a.w1);
            if (outcome == Outcome::unbounded) {
                job.status[e] = std::uint8_t(Status::unreachable);
                job.w1[e] = job.gap[e] = NAN;
            } else if (outcome == Outcome::optimal && a.excess <= GOOD_ENOUGH * scale) {
                job.status[e] = std::uint8_t(Status::solved);
                job.w1[e] = a.w1;
                job.gap[e] = a.excess / scale;
            } else {
                const std::lock_guard lock(mutex);
                left.push_back(e);
                continue;
            }
            job.done.fetch_add(1, std::memory_order_relaxed);
        }
    });
    std::sort(left.begin(), left.end());
    return left;
}

}  // namespace geoattn::GEOATTN_ISA
